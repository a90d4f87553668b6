"""Number m of prototypes × inverse smoothing ε [gsp, fig. 8].

sumpool study prototypes                           (glyphs: 62 minutes on two cores)
sumpool study prototypes --data cifar-100-python   (120 trainings: for a GPU)
sumpool study prototypes --data CUB_200_2011       (hours)
sumpool study prototypes --quick
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sumpool.report.store import Row
from sumpool.studies.effects import run_effects
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"prototypes": count, "eps": eps}
    for count in (16, 64, 128, 256)
    for eps in (0.5, 5.0, 10.0, 20.0, 50.0)
)


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    data: Path | None = None,
    jobs: int | None = None,
    weights: Path | None = None,
) -> list[Row]:
    """Run the study into ``out_dir``; see :func:`sumpool.studies.effects.run_effects`."""
    return run_effects(
        "prototypes",
        [LEVELS[number] for number in (0, 2, 5, 7)] if quick else LEVELS,
        change,
        out_dir,
        seeds=seeds,
        quick=quick,
        progress=progress,
        force=force,
        data=data,
        jobs=jobs,
        weights=weights,
    )


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set m and ε."""
    gsp = replace(config.gsp, prototypes=cell["prototypes"], eps=cell["eps"])
    return replace(config, gsp=gsp)
