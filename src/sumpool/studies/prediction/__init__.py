"""Zero-shot prediction of class embeddings from attributes."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "whether attributes of some classes predict others, with and without the zero-shot loss",
    "12 runs of 2000 steps: minutes on a GPU; needs CIFAR-10 or CIFAR-100 (--data)",
)
