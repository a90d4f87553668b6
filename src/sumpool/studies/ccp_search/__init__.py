"""Bayesian search for the pull and the number of proxies."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "pull λ and number of proxies by Bayesian search (needs sumpool[tune])",
    "24 runs: on glyphs or, with --data, on CIFAR collages or CUB",
)
