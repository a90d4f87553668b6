"""Proxies that are drawn again against proxies that are drawn once [thesis, fig. 3.7].

    sumpool study ccp-problems                           (glyphs: 36 trainings)
    sumpool study ccp-problems --data cifar-100-python   (for a GPU)
    sumpool study ccp-problems --data CUB_200_2011       (hours)
    sumpool study ccp-problems --quick

The loss inside batches, the loss between a batch and proxies in a single problem, and alternating
problems, for four losses; and how many steps a problem takes. Expected on CUB: proxies alone
explain little of the gain, alternation the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sumpool.studies.shared.ccp import METHODS, ccp_study, with_method
from sumpool.training import TrainConfig

LOSSES = ("c2", "c1", "ms", "triplet")
LEVELS = tuple({"method": method} for method in METHODS)


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set the method."""
    return with_method(config, cell["method"])


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = ccp_study("ccp-problems", LEVELS, change, LEVELS, LOSSES)
