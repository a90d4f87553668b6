"""Chance-constrained proxies in two dimensions."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "chance-constrained proxies in 2-D: whether proxies stay apart and cover their classes",
    "about 5 minutes on two cores; 9 runs of a ResNet with MNIST's files (--data)",
)
