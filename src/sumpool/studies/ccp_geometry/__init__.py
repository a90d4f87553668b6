"""Effect of alternating proxy problems on unseen classes."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "one proxy problem against alternating ones: covering radius and distance of new classes",
    "6 runs: on glyphs or, with --data, on CIFAR collages or CUB",
)
