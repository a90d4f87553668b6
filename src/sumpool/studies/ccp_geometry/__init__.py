"""How alternating proxy problems shape unseen classes."""

from sumpool.studies.shared.study import Study

STUDY = Study(
    "one proxy problem against alternating ones: covering radius and distance of new classes",
    "6 runs: on glyphs or, with --data, on CIFAR collages or CUB",
    experiment="sumpool.studies.ccp_geometry.experiment",
    report="sumpool.studies.ccp_geometry.section",
)
