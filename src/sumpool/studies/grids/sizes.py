"""Embedding size, with and without a center regularizer [skew, fig. 2].

    sumpool study sizes              (glyphs: 72 runs)
    sumpool study sizes --data DIR   (CIFAR-100 or CUB: for a GPU)

Embeddings have 32 to 1024 dimensions; multi-similarity and ProxyAnchor with average pooling are
trained alone and with R2 on far pairs, the regularizer that the paper proposes. On CUB, optimizer,
learning rate, crop and epochs are the paper's, but the best step is chosen on validation classes,
not on the test set. Expected on CUB: flat from 128 dimensions on, with MS falling at the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.report.labels import dataset_label, loss_name
from sumpool.report.section import Section, grouped
from sumpool.report.tables import Table
from sumpool.studies.cells import CellResult
from sumpool.studies.grids.plots import draw_lines, metric_table
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import Level, pooling_study
from sumpool.studies.shared.sections import study_section
from sumpool.studies.shared.testbed import Testbed, train_on, with_loss
from sumpool.system.rows import Row
from sumpool.training import StopConfig, TrainConfig

SIZES = (32, 64, 128, 256, 512, 1024)
#: No regularizer, and that of the paper.
REGULARIZERS = ("none", "r2-far")
LEVELS = tuple(
    {"embedding_size": size, "regularizer": name} for size in SIZES for name in REGULARIZERS
)
#: Steps per epoch over three quarters of CUB's training images, and epochs [skew, sec. 4.2].
EPOCH, EPOCHS = 138, 40


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set embedding size and regularizer."""
    name = cell["regularizer"]
    config = replace(config, pool="gap", embedding_size=cell["embedding_size"])
    return config if name == "none" else replace(config, center_reg=name)


def as_published(testbed: Testbed, out_dir: Path, quick: bool) -> Testbed:
    """Return the testbed, on CUB with the training settings of [skew]."""
    del out_dir
    if testbed.name != "CUB":
        return testbed
    config = testbed.config
    optimizer = replace(config.optimizer, name="adamw", lr=1e-4)
    stop = StopConfig(validate_every=EPOCH, patience=EPOCHS, max_steps=EPOCH * EPOCHS)
    config = replace(config, crop=224, images_per_class=0, optimizer=optimizer)
    config = replace(config, stop=config.stop if quick else stop)
    return replace(testbed, config=config)


def train(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell."""
    config = with_loss(testbed.config, cell["loss"], cell["seed"])
    return result(train_on(testbed, change(config, cell)))


run = pooling_study(
    "sizes",
    lambda _, quick: LEVELS[:4] if quick else LEVELS,
    train,
    losses=("ms", "panchor"),
    adapt=as_published,
)


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate R@1 and MAP@R by embedding size (rows), loss and regularizer (columns)."""
    table = partial(metric_table, _lines(rows), "embedding_size", "dimensions")
    return [table("precision_at_1", "R@1"), table("map_at_r", "MAP@R")]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and R@1 against the embedding size."""
    shared = {name: it for name, it in rows[0].settings.items() if name != "embedding_size"}
    figure = draw_lines(
        _lines(rows),
        "embedding_size",
        "dimensions",
        doubling=True,
        metric="precision_at_1",
        heading="R@1",
    )
    return study_section(
        rows,
        title="How long an embedding has to be",
        question=(
            "Longer embeddings cost memory and time in search. How much do they gain on "
            f"{dataset_label(rows[0].settings)}, and does spreading the centers of classes help "
            "short or long ones?"
        ),
        tables=tables(rows),
        figures={
            "R@1 against the length of the embedding, one line per loss and regularizer, a band "
            "for the standard deviation over seeds.": figure
        },
        notes=["R@1 is P@1. R2 on far pairs has weight 1; centers of MS are running means."],
        shared=shared,
    )


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found = grouped(rows, lambda row: (loss_name(row), str(row.cell["regularizer"])))
    return {
        loss if name == "none" else f"{loss}, {name}": found[loss, name]
        for loss, name in sorted(found)
    }
