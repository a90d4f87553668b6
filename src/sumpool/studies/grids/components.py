"""Sum pooling and the zero-shot loss, each on and off [gsp, tab. 1], [thesis, tab. 5.3].

    sumpool study components              (glyphs: 12 minutes on two cores)
    sumpool study components --data DIR   (CIFAR-100, 24 runs, or CUB: for a GPU)

CUB follows the tuning protocol: the first of five folds is held out and scored.

The zero-shot loss needs attributes: without GSP it uses those of μ = 1, which is average pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, loss_name, losses, on_collages
from sumpool.report.plots import panel_row
from sumpool.report.section import Section, grouped, measured, seeds_label, values
from sumpool.report.style import BLUE, GREY, ORANGE, SKY, mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.studies.grids.levels import gsp_study
from sumpool.studies.grids.plots import images_of
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.reporting import SCORES, cross_table
from sumpool.studies.shared.sections import study_section
from sumpool.studies.shared.testbed import ZERO_SHOT
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"gsp": gsp, "zero_shot": zero_shot} for gsp in (False, True) for zero_shot in (False, True)
)
#: (GSP, zero-shot loss) → name and color.
COMBINATIONS = {
    (False, False): ("neither", GREY),
    (False, True): ("zero-shot loss", SKY),
    (True, False): ("GSP", BLUE),
    (True, True): ("GSP and\nzero-shot loss", ORANGE),
}


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Switch the components; λ is the papers' on CUB and that of the studies on collages."""
    if not cell["gsp"]:
        config = replace(config, gsp=replace(config.gsp, mu=1.0))
    on_cub = config.format == "cub"
    zero_shot = replace(config.zero_shot, weight=0.1) if on_cub else ZERO_SHOT
    if not cell["zero_shot"]:
        zero_shot = replace(config.zero_shot, weight=0.0)
    return replace(config, zero_shot=zero_shot)


run = gsp_study("components", LEVELS, change)


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate each score by GSP (rows) and zero-shot loss (columns), one table per loss."""
    scores = measured(rows, SCORES).items()
    words = {False: "without", True: "with"}
    return [
        cross_table(
            ["pooling"],
            {("average pooling",): False, ("sum pooling (GSP)",): True},
            {
                f"{label} {words[used]} L_ZS": (used, score)
                for (score, label), used in product(scores, words)
            },
            grouped([row for row in rows if loss_name(row) == loss], _combination),
            f"{images_of(rows)}, loss {loss}, in %, {seeds_label(rows)}",
        )
        for loss in losses(rows)
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and MAP@R of the four combinations."""
    weight = "Weight: the share on the foreground tile; equal weights put 25% there."
    return study_section(
        rows,
        title="What sum pooling and the zero-shot loss each add",
        question=(
            "Generalized sum pooling (GSP) selects positions; the zero-shot loss L_ZS asks that "
            "the selected attributes tell unseen classes apart. What does each add alone, and both "
            f"together, on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={
            "MAP@R with neither, either and both of sum pooling and the zero-shot loss, for "
            "each loss.": draw(rows)
        },
        notes=[
            "The zero-shot loss needs prototypes: without sum pooling it is computed with μ = 1, "
            "which pools like average pooling and leaves the prototypes to the loss alone.",
            *([weight] if on_collages(rows[0].settings) else []),
        ],
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R of the four combinations as bars, one panel per loss."""
    names = losses(rows)
    cells = grouped(rows, lambda row: (loss_name(row), _combination(row)))
    figure, panels = panel_row(names, 3.9 * len(names) + 0.4, 3.4, sharey=True)
    for loss, axes in panels.items():
        style_axes(axes, f"loss {loss}", ylabel="MAP@R [%]" if loss == names[0] else "")
        for place, (combination, (_, color)) in enumerate(COMBINATIONS.items()):
            found = values(cells.get((loss, combination), []), "map_at_r")
            if not found:
                axes.annotate("–", (place, 0), ha="center", va="bottom")
                continue
            mean, deviation = mean_and_deviation(found)
            axes.bar(place, mean, 0.68, color=color)
            if deviation:
                axes.errorbar(place, mean, deviation, color="0.15", lw=1.2, capsize=4)
            top, above = (place, mean + deviation), "offset points"
            axes.annotate(f"{mean:.1f}", top, (0, 3), textcoords=above, ha="center", size=9)
        axes.set_xticks(range(len(COMBINATIONS)), [name for name, _ in COMBINATIONS.values()])
        axes.tick_params(axis="x", labelsize=8, length=0)
        axes.margins(y=0.12)
    return figure


def _combination(row: Row) -> tuple[bool, bool]:
    return bool(row.cell["gsp"]), bool(row.cell["zero_shot"])
