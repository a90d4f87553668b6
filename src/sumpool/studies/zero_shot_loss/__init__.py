"""Variants of the zero-shot loss."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "variants of the zero-shot loss on collages: when it helps, when it hurts",
    "84 runs on glyphs, 40 minutes on two cores, or on CIFAR collages (--data)",
)
