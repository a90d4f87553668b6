"""Study of average pooling."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "what average pooling does: prototypes that cover local features, hulls of classes",
    "6 runs on glyphs, about 5 minutes on two cores, or (--data) on CIFAR-10 or CIFAR-100",
)
