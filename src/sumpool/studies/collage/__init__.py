"""All poolings on collages."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "all poolings on collages: which of them finds the foreground",
    "132 runs on glyphs, about an hour on two cores; 288 on CIFAR collages (--data)",
)
