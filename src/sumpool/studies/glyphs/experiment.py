"""Average and generalized sum pooling on glyph collages, trained on a CPU.

    sumpool study glyphs          (about 4 minutes on two cores)

One tile of four shows a letter from three alphabets, the others show digits. A small network is
first trained on letters alone, as networks for photographs are on ImageNet, then on collages with
each pooling, all else being equal, and evaluated on unseen letters. Every cell is a separate run
with a folder under ``runs/`` in the study's folder.
Expected MAP@R over 3 seeds: see docs/results/glyphs.
"""

from __future__ import annotations

import csv
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sumpool.data import GlyphCollages
from sumpool.models import load_embedder
from sumpool.report.run.folder import LOG, MODEL, RUN
from sumpool.studies.cells import CellResult, run_cells
from sumpool.studies.shared.measuring import foreground_weight
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.testbed import open_testbed
from sumpool.studies.shared.warm_start import FACTS, warm_start
from sumpool.system.rows import ROWS, ResultStore, Row
from sumpool.training import GspConfig, StopConfig, TrainConfig, run_training

logger = logging.getLogger(__name__)

#: Options of GSP on keys, as for photographs.
KEYS = GspConfig(mu=0.3)
#: Options in which the methods differ.
METHODS: dict[str, dict[str, Any]] = {
    "GAP": {"pool": "gap"},
    "GSP": {"pool": "gsp"},
    "GSP on keys": {"pool": "gsp-keys", "gsp": KEYS},
}
SEEDS = 3

#: Steps on letters alone, on collages, and on collages in quick mode.
START_STEPS, STEPS, QUICK_STEPS = 600, 300, 4
#: Decay of the moving average of the weights, over about fifty steps.
AVERAGE = 0.98


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    jobs: int | None = None,
) -> list[Row]:
    """Train the missing cells; see :class:`~sumpool.studies.shared.study.RunStudy`.

    A single progress bar covers all steps of all cells.
    """
    if force and (out_dir / ROWS).is_file():  # otherwise these folders are not of this study
        for name in ("runs", "warm-start"):
            shutil.rmtree(out_dir / name, ignore_errors=True)
    testbed = open_testbed(out_dir, None, quick=False, weights=None, progress=False)
    config = _config(testbed.config, quick=quick)
    settings = {
        "start_steps": START_STEPS,
        "steps": config.stop.max_steps,
        "config": _shared(config),
    }
    store = ResultStore(out_dir, "glyphs", settings, force=force)
    cells: list[dict[str, Any]] = [
        {"method": method, "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for method in METHODS
    ]
    missing = [cell for cell in cells if store.find(cell) is None]
    folders = [cell_folder(out_dir, cell["method"], cell["seed"]) for cell in missing]
    if missing:
        if not (out_dir / "warm-start" / FACTS).is_file():
            logger.info("training the network on letters alone")
        begun = warm_start(testbed, out_dir, quick=quick, foreground=True, steps=START_STEPS)
        config = replace(config, weights=begun.config.weights)
    steps = config.stop.max_steps
    assert steps is not None
    with _step_bar(folders, steps, progress and bool(missing)):
        work = partial(_train_cell, config, out_dir)
        return run_cells(store, cells, work, jobs=jobs, quick=quick, progress=False)


def _config(config: TrainConfig, *, quick: bool) -> TrainConfig:
    """Return the configuration shared by all cells, from that of the glyph testbed."""
    stop = StopConfig(validate_every=100, patience=1000, max_steps=STEPS)
    if quick:
        stop = StopConfig(validate_every=QUICK_STEPS, patience=1, max_steps=QUICK_STEPS)
    optimizer = replace(config.optimizer, schedule="cosine", ema=AVERAGE)
    # The statistics of letters alone do not fit collages.
    return replace(config, stop=stop, optimizer=optimizer, freeze_batch_norm=False)


def cell_folder(out_dir: Path, method: str, seed: int) -> Path:
    """Return the run folder of a cell."""
    return out_dir / "runs" / f"{METHODS[method]['pool']}-{seed}"


def _shared(config: TrainConfig) -> dict[str, Any]:
    gsp, stop = config.gsp, config.stop
    return {
        "backbone": config.backbone,
        "embedding_size": config.embedding_size,
        "loss": config.loss,
        "lr": config.optimizer.lr,
        "batch_size": config.batch_size,
        "validate_every": stop.validate_every,
        "prototypes": gsp.prototypes,
        "mu": gsp.mu,
        "eps": gsp.eps,
        "keys_mu": KEYS.mu,
    }


@contextmanager
def _step_bar(folders: Sequence[Path], steps: int, progress: bool) -> Iterator[None]:
    """Show the progress of the runs in ``folders``, ``steps`` steps each, inside the ``with``."""
    ended = threading.Event()
    bar = tqdm(
        total=steps * len(folders),
        desc="training",
        unit="step",
        disable=not progress,
        smoothing=0.02,
    )

    def follow() -> None:
        over = False
        while not over:
            over = ended.wait(0.5)
            done = [_steps_done(folder) for folder in folders]
            finished = f"{done.count(steps)} of {len(folders)} runs finished"
            bar.set_postfix_str(finished, refresh=False)
            bar.update(sum(done) - bar.n)

    follower = threading.Thread(target=follow)
    with bar:
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def _train_cell(config: TrainConfig, out_dir: Path, cell: dict[str, Any]) -> CellResult:
    folder = cell_folder(out_dir, cell["method"], cell["seed"])
    config = replace(
        config,
        **METHODS[cell["method"]],
        seed=cell["seed"],
        out=str(folder),
        # The pages compare the galleries of the first seeds.
        gallery=cell["seed"] == 0,
    )
    # An existing run was left by an interrupted study; resuming it refuses other settings.
    resume = folder if (folder / RUN).is_file() else None
    result = run_training(config, resume=resume, progress=False, validate_first=False)
    if result.outcome.stopped == "interrupted":
        raise KeyboardInterrupt(result.outcome.signal)
    model = load_embedder(folder / MODEL)
    collages = GlyphCollages(split="test")
    share = foreground_weight(model, collages, collages.letter_tile)
    assert share is not None
    return CellResult(
        {
            "map_at_r": result.metrics["test"]["mean_average_precision_at_r"],
            "precision_at_1": result.metrics["test"]["precision_at_1"],
            "validation_map_at_r": result.metrics["validation"]["mean_average_precision_at_r"],
            "queries": result.metrics["test"]["queries"],
            "best_step": result.outcome.best_step,
            "letter_weight": share,
        }
    )


def _steps_done(folder: Path) -> int:
    try:
        with (folder / LOG).open(newline="", encoding="utf-8") as file:
            steps = [row["step"] for row in csv.DictReader(file)]
    except FileNotFoundError:
        return 0
    return int(steps[-1]) if steps and steps[-1].isdecimal() else 0
