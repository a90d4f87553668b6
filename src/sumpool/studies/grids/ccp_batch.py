"""Batch size, with and without chance-constrained proxies [thesis, fig. 3.8].

    sumpool study ccp-batch                           (glyphs: 24 trainings)
    sumpool study ccp-batch --data cifar-100-python   (for a GPU)
    sumpool study ccp-batch --data CUB_200_2011       (hours)
    sumpool study ccp-batch --quick

Batches of 16 to 128 images, four of a class; more of a class where there are too few classes for
that. Expected on CUB: the loss inside batches gains from larger ones; with proxies small batches do
as well as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.studies.shared.ccp import ccp_study, with_method
from sumpool.training import TrainConfig

SIZES = (16, 32, 64, 128)
METHODS = ("base", "alternating")
LEVELS = tuple({"method": method, "batch_size": size} for size in SIZES for method in METHODS)
#: Classes there are, of formats with fewer than the largest batch would have.
FEW_CLASSES = {"cifar-collage": 16}


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set method and batch size."""
    size = cell["batch_size"]
    per_class = max(4, size // FEW_CLASSES.get(config.format, size))
    config = replace(config, batch_size=size, images_per_class=per_class)
    return with_method(config, cell["method"])


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = ccp_study("ccp-batch", LEVELS, change, LEVELS[:4])
