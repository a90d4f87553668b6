"""Pooling weights on a small map."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "pooling weights on a 10×10 map of red and blue on green (hard, smooth, average)",
    "a second",
)
