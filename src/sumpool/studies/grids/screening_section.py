"""The screening of the hyper-parameters on a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from matplotlib.figure import Figure

from sumpool.report.labels import conditions, dataset_label, loss_name, losses
from sumpool.report.section import (
    NOTHING,
    Section,
    grouped,
    measured,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
)
from sumpool.report.style import BLUE, ORANGE, style_axes
from sumpool.report.tables import Table
from sumpool.studies.grids.main_effects import FACTORS, Effect, combination, main_effects
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """The main effects, and the runs they come from."""
    names = losses(rows)
    effects = _effects(rows)
    words = dataset_label(rows[0].settings)
    lines = []
    for factor, label in FACTORS.items():
        known = next((own[factor] for own in effects.values() if factor in own), None)
        levels = f"{known.low:g} → {known.high:g}" if known else NOTHING
        lines.append([label, levels, *(_in_words(effects[loss].get(factor)) for loss in names)])
    main = Table(
        ["factor", "levels", *names],
        lines,
        f"Change of MAP@R from the low to the high level, in points, ± standard error; {words}",
    )
    runs = grouped(rows, combination)
    scores = measured(
        rows, {"map_at_r": "MAP@R", "precision_at_1": "P@1", "foreground_weight": "weight"}
    )
    table = Table(
        [*FACTORS.values(), *(f"{loss} {label}" for loss in names for label in scores.values())],
        [
            [
                *(f"{level:g}" for level in levels),
                *(
                    over_seeds([it for it in runs[levels] if loss_name(it) == loss], score, 1, 100)
                    for loss in names
                    for score in scores
                ),
            ]
            for levels in sorted(runs)
        ],
        f"The runs on {words}, "
        + ("weight: the share on the foreground tile, " if "foreground_weight" in scores else "")
        + f"all in %, {seeds_in_words(rows)}",
    )
    return [main, table]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    count = len({combination(row) for row in rows})
    return Section(
        title="Which hyper-parameters matter",
        question=(
            f"{len(FACTORS)} hyper-parameters at two levels each make {2 ** len(FACTORS)} "
            f"combinations; {count} of them, balanced, are run on "
            f"{dataset_label(rows[0].settings)}. Which one changes MAP@R the most?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(draw, rows),
                "The main effect of each hyper-parameter on MAP@R as a bar with its standard "
                "error, for each loss.",
            )
        ],
        notes=[
            "A main effect is the mean MAP@R of the runs at a factor's high level less that at its "
            "low level. Its standard error comes from the spread over seeds, pooled over "
            "combinations; with one seed there is none. In the half of all combinations where the "
            "product of the levels is fixed, main effects are mixed with effects of three factors "
            "together only.",
            *conditions(rows[0].settings),
        ],
        provenance=provenance(rows),
    )


def draw(rows: Sequence[Row], out: str | Path | BinaryIO) -> None:
    """Draw the main effects on MAP@R as bars, a panel for each loss.

    Args:
        rows: Rows of the screening study.
        out: The image to write: a path whose suffix names the format, or a file for PNG.
    """
    effects = _effects(rows)
    figure = Figure(figsize=(3.7 * len(effects) + 1.2, 2.9), layout="constrained")
    grid = figure.subplots(1, len(effects), sharex=True, sharey=True, squeeze=False)[0]
    ends = [0.0]
    for axes, (loss, own) in zip(grid, effects.items(), strict=True):
        style_axes(axes, f"loss {loss}", xlabel="change of MAP@R [points]", grid="x")
        axes.axvline(0, color="0.3", lw=1)
        for line, factor in enumerate(FACTORS):
            if factor not in own:
                continue
            difference, error = own[factor].difference, own[factor].error or 0.0
            color = BLUE if difference >= 0 else ORANGE
            axes.barh(line, difference, 0.62, color=color)
            if error:
                axes.errorbar(difference, line, xerr=error, color="0.15", lw=1.2, capsize=3)
            end = difference + (error if difference >= 0 else -error)
            ends.append(end)
            axes.annotate(
                f"{difference:+.1f}",
                (end, line),
                (4 if difference >= 0 else -4, 0),
                textcoords="offset points",
                ha="left" if difference >= 0 else "right",
                va="center",
                size=8.5,
            )
    known = {factor: effect for own in effects.values() for factor, effect in own.items()}
    grid[0].set_yticks(
        range(len(FACTORS)),
        [
            f"{label}\n{known[factor].low:g} → {known[factor].high:g}" if factor in known else label
            for factor, label in FACTORS.items()
        ],
    )
    grid[0].set_ylim(len(FACTORS) - 0.5, -0.5)
    room = 0.18 * (max(ends) - min(ends)) or 1.0
    grid[0].set_xlim(
        min(ends) - (room if min(ends) < 0 else room / 6),
        max(ends) + (room if max(ends) > 0 else room / 6),
    )
    figure.savefig(out, dpi=140)


def _effects(rows: Sequence[Row]) -> dict[str, dict[str, Effect]]:
    return {
        loss: dict(main_effects([it for it in rows if loss_name(it) == loss], "map_at_r", 100))
        for loss in losses(rows)
    }


def _in_words(effect: Effect | None) -> str:
    if effect is None:
        return NOTHING
    error = "" if effect.error is None else f" ± {effect.error:.1f}"
    return f"{effect.difference:+.1f}{error}"
