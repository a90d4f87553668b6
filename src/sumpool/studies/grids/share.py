"""The share μ of an image that is pooled [gsp, fig. 6].

    sumpool study share              (glyphs: 22 minutes on two cores)
    sumpool study share --data DIR   (CIFAR-100, 42 runs, or CUB: for a GPU)

CUB follows the tuning protocol: the first of five folds is held out and scored, λ = 0.1.

The foreground covers a quarter of a collage; μ = 1 is average pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, loss_name, losses
from sumpool.report.plots import panel_row
from sumpool.report.section import Section, grouped, measured
from sumpool.report.style import style_axes
from sumpool.report.tables import Table
from sumpool.studies.grids.levels import gsp_study
from sumpool.studies.grids.plots import draw_line, images_of, scores_caption
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.reporting import SCORES, cross_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

LEVELS = tuple({"mu": mu} for mu in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0))


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set μ."""
    return replace(config, gsp=replace(config.gsp, mu=cell["mu"]))


run = gsp_study("share", LEVELS, change, LEVELS[1::5])


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate scores and weight on the foreground by share (rows) and loss (columns)."""
    scores = measured(rows, SCORES)
    table = cross_table(
        ["μ"],
        {(f"{mu:g}",): mu for mu in sorted({_mu(row) for row in rows})},
        {
            f"{loss} {label}": (loss, score)
            for loss in losses(rows)
            for score, label in scores.items()
        },
        grouped(rows, lambda row: (_mu(row), loss_name(row))),
        scores_caption(images_of(rows), rows),
    )
    return [table]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and MAP@R against μ."""
    return study_section(
        rows,
        title="How much to pool",
        question=(
            "The share μ says how much of the image is pooled. Too little leaves out what tells "
            "classes apart; μ = 1 is average pooling. How much depends on it on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={
            "MAP@R, and the pooling weight on the foreground, against the share μ; one line "
            "per loss, a band for the standard deviation over seeds.": draw(rows)
        },
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R and, if measured, the weight on the foreground against μ."""
    labels = {"map_at_r": "MAP@R [%]", "foreground_weight": "weight on the foreground tile [%]"}
    labels = measured(rows, labels)
    figure, panels = panel_row(list(labels), 4.2 * len(labels), 3.2)
    for score, axes in panels.items():
        style_axes(axes, "", xlabel="share μ", ylabel=labels[score])
        for place, loss in enumerate(losses(rows)):
            own = [row for row in rows if loss_name(row) == loss]
            draw_line(axes, own, "mu", score, place, loss, "-")
        if score == "foreground_weight":
            axes.axhline(25, color="0.45", lw=1, ls=":", label="equal weights")
        axes.set_xlim(left=0)
        axes.legend(fontsize=8.5, frameon=False)
    return figure


def _mu(row: Row) -> float:
    return float(row.cell["mu"])
