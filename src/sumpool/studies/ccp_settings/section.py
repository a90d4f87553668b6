"""The study of the settings of chance-constrained proxies on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sumpool.report.labels import (
    conditions,
    dataset_label,
    in_given_order,
    loss_name,
    losses,
)
from sumpool.report.section import (
    NOTHING,
    Section,
    grouped,
    measured,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.style import BLUE, GREY, hbar_with_error, style_axes
from sumpool.report.tables import Table, mean_and_spread
from sumpool.studies.ccp_settings.figures import draw_curves, validations
from sumpool.studies.shared.ccp_labels import note, problem_columns
from sumpool.system.rows import Row

#: The variant that the others are compared with.
BASE = "base"
#: The names of the variants, in the order they are told.
VARIANTS = {
    BASE: "base loss",
    "base, many validations": "base loss, many validations",
    "thesis": "proxies as in the thesis",
    "one problem": "one problem",
    "random proxies": "random proxies",
    "no pull": "no pull, λ = 0",
    "patience 10": "patience 10",
    "batch weight 0.1": "batch pairs too, weight 0.1",
    "proxies x10": "rate of proxies × 10",
    "proxies x100": "rate of proxies × 100",
    "last weights": "last weights",
    "last weights, patience 10": "last weights, patience 10",
    "unit vectors": "unit vectors",
    "unit vectors, patience 10": "unit vectors, patience 10",
    "unit vectors, last weights": "unit vectors, last weights",
    "unit vectors, last weights, batch weight 0.1": "unit vectors, last weights, batch pairs",
}
#: The variants whose validation is drawn step by step.
CURVES = (BASE, "thesis", "last weights", "last weights, patience 10")
#: Metric → column, digits, scale.
_COLUMNS = {
    "precision_at_1": ("P@1 [%]", 1, 100.0),
    "validation_map_at_r": ("validation MAP@R [%]", 1, 100.0),
    "best_step": ("best step", 0, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Scores of every loss and variant, what it gains, and what its problems were like."""
    cells = grouped(rows, lambda row: (loss_name(row), str(row.cell["variant"])))
    columns = measured(rows, _COLUMNS)
    headings, told = problem_columns(rows)
    lines = [
        [
            f"{loss}, {VARIANTS.get(variant, variant)}",
            over_seeds(own, "map_at_r", 1, 100),
            NOTHING if variant == BASE else _signed(gains(own, cells.get((loss, BASE), []))),
            *(over_seeds(own, name, *look[1:]) for name, look in columns.items()),
            *told(own),
        ]
        for loss in losses(rows)
        for variant in _variants(rows)
        if (own := cells.get((loss, variant), []))
    ]
    header = ["training", "MAP@R [%]", "gain [points]", *(it[0] for it in columns.values())]
    caption = f"Test images of {dataset_label(rows[0].settings)}, {seeds_in_words(rows)}"
    return [Table([*header, *headings], lines, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    curves = validations(folder, rows, CURVES)
    return Section(
        title="Chance-constrained proxies: which settings they need",
        question=(
            "Proxies with the settings of the thesis, and with some of them changed: "
            "which setting decides whether they gain over the loss inside batches on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "Test MAP@R of each variant as a bar, one panel a loss, whiskers for the standard "
                "deviation over seeds; a dashed line for the base loss.",
            ),
            *(
                [
                    render_png(
                        partial(draw_curves, curves, VARIANTS),
                        "MAP@R on the validation classes by step, one line a training and one "
                        "panel a loss; a dot at the best.",
                    )
                ]
                if curves
                else []
            ),
        ],
        notes=[
            "Gain: against the base loss with the same seed. Rate of proxies: their learning rate "
            "over that of the network, 1 otherwise. Unit vectors: embeddings v/‖v‖; otherwise "
            "v/max(1, ‖v‖) with proxies, and v/‖v‖ with the base loss. Last weights: a problem "
            "ends with its last weights; otherwise with those of its best validation.",
            note(rows),
            *conditions(rows[0].settings),
        ],
        provenance=provenance(rows),
    )


def gains(rows: Sequence[Row], base: Sequence[Row]) -> list[float]:
    """MAP@R less that of ``base``, seed by seed, for the seeds that both have."""
    own, other = (
        {int(row.cell["seed"]): float(row.metrics["map_at_r"]) for row in part}
        for part in (rows, base)
    )
    return [own[seed] - other[seed] for seed in sorted(own) if seed in other]


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw test MAP@R as bars, one panel a loss, the base loss as a dashed line.

    Args:
        rows: Rows of the study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    variants, panels = _variants(rows), losses(rows)
    figure = Figure(
        figsize=(3.7 * len(panels) + 2.0, max(2.4, 0.32 * len(variants) + 1.0)),
        layout="constrained",
    )
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, loss in zip(grid, panels, strict=True):
        style_axes(axes, f"loss {loss}", xlabel="test MAP@R [%]", grid="x")
        _bars(axes, [row for row in rows if loss_name(row) == loss], variants)
    grid[0].set_yticks(range(len(variants)), [VARIANTS.get(name, name) for name in variants])
    grid[0].set_ylim(len(variants) - 0.4, -0.6)
    grid[0].set_xlim(0, 1.12 * grid[0].get_xlim()[1])  # room for the numbers
    figure.savefig(out, dpi=140)


def _bars(axes: Axes, rows: Sequence[Row], variants: Sequence[str]) -> None:
    cells = grouped(rows, lambda row: str(row.cell["variant"]))
    for line, variant in enumerate(variants):
        found = values(cells.get(variant, []), "map_at_r")
        if not found:
            continue
        color = GREY if variant.startswith(BASE) else BLUE
        mean = hbar_with_error(axes, line, found, height=0.72, color=color)
        if variant == BASE:
            axes.axvline(mean, color="0.15", ls="--", lw=1.2)


def _signed(found: Sequence[float]) -> str:
    if not found:
        return NOTHING
    words = mean_and_spread(found, 1, 100)
    return words if words.startswith("-") else f"+{words}"


def _variants(rows: Sequence[Row]) -> list[str]:
    return in_given_order((str(row.cell["variant"]) for row in rows), tuple(VARIANTS))
