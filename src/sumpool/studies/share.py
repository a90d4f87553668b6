"""The share μ of an image that is pooled [gsp, fig. 6].

    sumpool study share                           (glyphs: 22 minutes on two cores)
    sumpool study share --data cifar-100-python   (42 trainings: for a GPU)
    sumpool study share --data CUB_200_2011       (hours)
    sumpool study share --quick

A collage's foreground takes a quarter of it; μ = 1 is average pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sumpool.report.store import Row
from sumpool.studies.effects import run_effects
from sumpool.training import TrainConfig

LEVELS = tuple({"mu": mu} for mu in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0))


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
        "share",
        LEVELS[1::5] if quick else LEVELS,
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
    """Set μ."""
    return replace(config, gsp=replace(config.gsp, mu=cell["mu"]))
