"""Batch size, with and without chance-constrained proxies [thesis, fig. 3.8].

    sumpool study ccp-batch              (glyphs: 24 runs)
    sumpool study ccp-batch --data DIR   (CIFAR-100 or CUB: for a GPU)

Batches have 16 to 128 images, four per class, or more where there are too few classes. CUB follows
the fair protocol, as in the thesis. Expected on CUB: the in-batch loss gains from larger batches;
with proxies, small batches do as well.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sumpool.report.labels import dataset_label
from sumpool.report.section import Section
from sumpool.report.tables import Table
from sumpool.studies.grids.plots import draw_lines, metric_table
from sumpool.studies.shared.ccp import ccp_study, with_method
from sumpool.studies.shared.ccp_labels import by_method
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

SIZES = (16, 32, 64, 128)
LEVELS = tuple(
    {"method": method, "batch_size": size} for size in SIZES for method in ("base", "alternating")
)
#: Number of classes of formats that have fewer than the largest batch needs.
FEW_CLASSES = {"cifar-collage": 16}


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set method and batch size."""
    size = cell["batch_size"]
    per_class = max(4, size // FEW_CLASSES.get(config.format, size))
    config = replace(config, batch_size=size, images_per_class=per_class)
    return with_method(config, cell["method"])


run = ccp_study("ccp-batch", LEVELS, change, LEVELS[:4], tuning=False)


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R by batch size (rows) and method (columns)."""
    return [metric_table(by_method(rows), "batch_size", "batch size")]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and MAP@R against the batch size."""
    shared = {name: it for name, it in rows[0].settings.items() if name != "batch_size"}
    figure = draw_lines(by_method(rows), "batch_size", "batch size", doubling=True)
    return study_section(
        rows,
        title="Chance-constrained proxies: batch size",
        question=(
            "A loss inside batches sees the pairs of a batch alone. Proxies stand for images "
            "outside of it. Do small batches do with them on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={
            "MAP@R against the batch size, one line per method, a band for the standard "
            "deviation over seeds.": figure
        },
        shared=shared,
    )
