"""Regularizers of class centers."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "regularizers of class centers beside proxy losses: how evenly centers lie, retrieval",
    "42 runs on glyphs, half an hour on two cores; 114 on CIFAR collages or CUB (--data)",
)
