"""Chance-constrained proxies in 2-D: do they stay apart, and does their covering radius shrink?

    sumpool study ccp-plane              (scikit-learn's digits: 5 minutes on two cores)
    sumpool study ccp-plane --data DIR   (the four files of MNIST or Fashion-MNIST: half an hour)

Debian's ``dataset-fashion-mnist`` installs Fashion-MNIST in ``/usr/share/datasets/fashion-mnist``.

Two-dimensional embeddings are trained with 4 proxies per class, picked among 16 images
[thesis, fig. 3.2]: in one problem, whose proxies are drawn once, and in alternating problems with
the same total number of steps. The base loss uses samples in place of proxies
[thesis, sec. 3.3.1]: it compares the images of a batch with each other. Training, validation and
test images share classes.

Expected on digits, 6 seeds: the proxies of the single problem collapse (spread below 0.001), those
of alternating problems stay 0.02 to 0.06 apart in most seeds; their covering radius falls from
0.135 to 0.109, against 0.128 in the single problem, but not in every seed; test MAP@R is 95 % with
samples, 93 and 92 % with proxies. How far apart proxies stay depends on learning rate × steps of a
problem.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.splits import first_of_each_class
from sumpool.studies.ccp_plane.setup import PlaneSettings, choose_settings, open_parts
from sumpool.studies.ccp_plane.watch import Watched, cell_config, train_and_watch
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.shared.ccp import problem_metrics
from sumpool.studies.shared.ccp_labels import METHODS
from sumpool.studies.shared.seeds import seed_range
from sumpool.system.rows import ResultStore, Row

SEEDS = 3
#: Maximum number of problems shown in figures.
SHOWN = 5
#: Metrics stored for every problem, with its number appended to the name.
STORED = ("spread", "covering_radius", "value", "last_step")


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    data: Path | None = None,
    jobs: int | None = None,
) -> list[Row]:
    """Train the missing cells; see :class:`~sumpool.studies.shared.study.RunStudy`.

    ``data`` is a folder with MNIST or Fashion-MNIST; None uses scikit-learn's digits.
    """
    settings = choose_settings(data, quick)
    store = ResultStore(out_dir, "ccp-plane", asdict(settings), force=force)
    cells = [
        {"method": method, "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for method in METHODS
    ]
    work = partial(run_cell, settings, data)
    return run_cells(store, cells, work, jobs=jobs, quick=quick, progress=progress)


def run_cell(settings: PlaneSettings, data: Path | None, cell: dict[str, Any]) -> CellResult:
    """Train one embedding and measure its problems; ``cell`` has ``method`` and ``seed``."""
    splits = open_parts(settings, data, cell["seed"])
    shown = splits.train.subset(first_of_each_class(splits.train.labels, settings.shown))
    config = cell_config(settings, cell["method"], cell["seed"])
    found = train_and_watch(config, splits, shown)
    trained = found.trained
    metrics = {
        "map_at_r": trained.metrics["test"]["mean_average_precision_at_r"],
        "validation_map_at_r": trained.metrics["validation"]["mean_average_precision_at_r"],
        "steps": float(trained.outcome.steps),
        **problem_metrics(trained.problems, "best"),
    }
    for number, (problem, (converged, _)) in enumerate(
        zip(trained.problems, trained.proxy_trace, strict=True), 1
    ):
        relative = problem["covering_radius"] / class_distance(converged)
        metrics |= {f"{name}_{number}": problem[name] for name in STORED}
        metrics[f"relative_radius_{number}"] = relative
    if cell["seed"] != 0 or not trained.problems:
        return CellResult(metrics)
    names = np.array(shown.class_names)
    return CellResult(
        metrics, {**geometry(found), "labels": shown.labels.numpy(), "class_names": names}
    )


def class_distance(proxies: Tensor) -> float:
    """Return the mean distance between the mean proxies of two classes, given proxies (C, P, D).

    Embeddings grow inside the unit ball during training; this is the scale of other distances.

    Example:
        >>> class_distance(torch.tensor([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 3.0], [1.0, 5.0]]]))
        4.0
    """
    return float(torch.pdist(proxies.float().mean(1)).mean())


def geometry(found: Watched) -> dict[str, NDArray[Any]]:
    """Return embeddings and proxies of the first problems and the last.

    Returns:
        ``shown`` (k,) int64, the numbers of these problems; ``embeddings`` (k, n, 2) of training
        images and ``converged`` (k, C, P, 2), the proxies, at the best step of each; ``next``
        (k, C, P, 2), the proxies drawn next, NaN after the last problem.
    """
    trace = found.trained.proxy_trace
    chosen = sorted({*range(len(trace))[: SHOWN - 1], len(trace) - 1})
    empty = np.full(tuple(trace[0][0].shape), np.nan, np.float32)
    drawn = [trace[it][1] for it in chosen]
    return {
        "shown": np.array(chosen) + 1,
        "embeddings": np.stack([found.seen[it] for it in chosen]),
        "converged": np.stack([trace[it][0].float().numpy() for it in chosen]),
        "next": np.stack([empty if it is None else it.float().numpy() for it in drawn]),
    }
