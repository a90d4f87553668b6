"""Settings of chance-constrained proxies."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "which settings chance-constrained proxies need, with C2 and MS",
    "90 runs: on glyphs or, with --data, on CIFAR collages; 96 on CUB",
)
