"""The component study on a page: sum pooling and the zero-shot loss, each on and off."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from matplotlib.figure import Figure

from sumpool.report.labels import (
    conditions,
    dataset_label,
    loss_name,
    losses,
    on_collages,
)
from sumpool.report.section import (
    Section,
    grouped,
    measured,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.style import BLUE, GREY, ORANGE, SKY, mean_and_deviation, style_axes
from sumpool.report.tables import Table
from sumpool.system.rows import Row

#: (GSP, zero-shot loss) → name and colour.
COMBINATIONS = {
    (False, False): ("neither", GREY),
    (False, True): ("zero-shot loss", SKY),
    (True, False): ("GSP", BLUE),
    (True, True): ("GSP and\nzero-shot loss", ORANGE),
}
_POOLINGS = {False: "average pooling", True: "sum pooling (GSP)"}
_SCORES = {"map_at_r": "MAP@R", "precision_at_1": "P@1", "foreground_weight": "weight"}


def tables(rows: list[Row]) -> list[Table]:
    """For each loss and score the two by two of GSP and the zero-shot loss."""
    cells = grouped(rows, _combination)
    scores = measured(rows, _SCORES)
    found = []
    for loss in losses(rows):
        header = ["pooling"]
        header += [
            f"{label} {words} L_ZS" for label in scores.values() for words in ("without", "with")
        ]
        lines = [
            [
                name,
                *(
                    over_seeds(cells.get((loss, gsp, zero_shot), []), score, 1, 100)
                    for score in scores
                    for zero_shot in (False, True)
                ),
            ]
            for gsp, name in _POOLINGS.items()
        ]
        words = dataset_label(rows[0].settings)
        found.append(Table(header, lines, f"Loss {loss}, {words}, in %, {seeds_in_words(rows)}"))
    return found


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    return Section(
        title="What sum pooling and the zero-shot loss each add",
        question=(
            "Generalized sum pooling (GSP) selects positions; the zero-shot loss L_ZS asks that "
            "the selected attributes tell unseen classes apart. What does each add alone, and both "
            f"together, on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "MAP@R with neither, either and both of sum pooling and the zero-shot loss, for "
                "each loss.",
            )
        ],
        notes=[
            "The zero-shot loss needs prototypes: without sum pooling it is computed with μ = 1, "
            "which pools like average pooling and leaves the prototypes to the loss alone.",
            *(
                ["Weight: the share on the foreground tile; equal weights put 25% there."]
                if on_collages(rows[0].settings)
                else []
            ),
            *conditions(rows[0].settings),
        ],
        provenance=provenance(rows),
    )


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw MAP@R of the four combinations as bars, a panel for each loss.

    Args:
        rows: Rows of the component study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    panels, cells = losses(rows), grouped(rows, _combination)
    figure = Figure(figsize=(3.9 * len(panels) + 0.4, 3.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, loss in zip(grid, panels, strict=True):
        style_axes(axes, f"loss {loss}", ylabel="MAP@R [%]" if axes is grid[0] else "")
        for place, ((gsp, zero_shot), (_, color)) in enumerate(COMBINATIONS.items()):
            found = values(cells.get((loss, gsp, zero_shot), []), "map_at_r")
            if not found:
                axes.annotate("–", (place, 0), ha="center", va="bottom")
                continue
            mean, deviation = mean_and_deviation(found)
            axes.bar(place, mean, 0.68, color=color)
            if deviation:
                axes.errorbar(place, mean, deviation, color="0.15", lw=1.2, capsize=4)
            axes.annotate(
                f"{mean:.1f}",
                (place, mean + deviation),
                (0, 3),
                textcoords="offset points",
                ha="center",
                size=9,
            )
        axes.set_xticks(range(len(COMBINATIONS)), [name for name, _ in COMBINATIONS.values()])
        axes.tick_params(axis="x", labelsize=8, length=0)
        axes.margins(y=0.12)
    figure.savefig(out, dpi=140)


def _combination(row: Row) -> tuple[str, bool, bool]:
    return loss_name(row), bool(row.cell["gsp"]), bool(row.cell["zero_shot"])
