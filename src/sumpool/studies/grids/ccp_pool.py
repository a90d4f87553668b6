"""How many proxies a class has, and among how many images new ones are picked [thesis, fig. 3.6].

    sumpool study ccp-pool                           (glyphs: 36 trainings)
    sumpool study ccp-pool --data cifar-100-python   (for a GPU)
    sumpool study ccp-pool --data CUB_200_2011       (hours)
    sumpool study ccp-pool --quick

A pool as large as the number of proxies is random drawing. Expected on CUB: more proxies and larger
pools are better, but for a single proxy, where the choice cannot look back farther than one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sumpool.studies.shared.ccp import ccp_study, with_method
from sumpool.training import TrainConfig

PROXIES = (1, 4, 8)
POOLS = (1, 4, 8, 12, 16)
LEVELS = tuple(
    {"proxies": proxies, "pool": pool} for proxies in PROXIES for pool in POOLS if pool >= proxies
)


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set proxies and pool."""
    return with_method(config, "alternating", proxies=cell["proxies"], candidates=cell["pool"])


#: Runs the study; see :class:`sumpool.studies.RunStudy`.
run = ccp_study("ccp-pool", LEVELS, change, [{"proxies": 1, "pool": 4}, {"proxies": 4, "pool": 4}])
