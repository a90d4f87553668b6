"""All poolings on collages."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "all poolings on collages: which of them finds the foreground",
    "192 runs on glyphs, an hour and a half on two cores; 408 on CIFAR collages (--data)",
)
PAPER = Study(
    "collages with the training of the paper: plateau schedule, no warm-up, λ = 0.5",
    "24 runs on CIFAR collages (--data): for a GPU; on glyphs about an hour on two cores",
    experiment=f"{__name__}.paper",
    report=f"{__name__}.section",
)
