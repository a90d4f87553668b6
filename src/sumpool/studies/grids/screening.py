"""Screening of m, μ, ε and λ by a two-level half factorial [gsp, tab. 5], [thesis, tab. 5.4].

    sumpool study screening              (glyphs: 25 minutes on two cores)
    sumpool study screening --data DIR   (CIFAR-100, 48 runs, or CUB: for a GPU)

CUB follows the tuning protocol: the first of five folds is held out and scored.

Runs eight of the sixteen combinations, those with an even number of options at the high level
(I = m μ ε λ), so that main effects are not confounded with each other or with interactions of two
options.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from sumpool.report.labels import dataset_label, loss_name, losses
from sumpool.report.plots import panel_row
from sumpool.report.section import NOTHING, Section, grouped, measured
from sumpool.report.style import BLUE, ORANGE, style_axes
from sumpool.report.tables import Table
from sumpool.studies.grids.levels import gsp_study
from sumpool.studies.grids.main_effects import LABELS, Effect, combination, main_effects
from sumpool.studies.grids.plots import images_of, scores_caption
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.reporting import SCORES, cross_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

#: Low and high level of each option.
FACTORS: Mapping[str, tuple[float, float]] = {
    "prototypes": (16, 128),
    "mu": (0.3, 0.7),
    "eps": (0.5, 20.0),
    "zero_shot": (0.1, 0.5),
}


def half_factorial(factors: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """Return the combinations with an even number of high levels.

    Example:
        >>> half_factorial({"a": (1, 2), "b": (3, 4), "c": (5, 6)})[1]
        {'a': 1, 'b': 4, 'c': 6}
    """
    return [
        {name: pair[high] for (name, pair), high in zip(factors.items(), levels, strict=True)}
        for levels in itertools.product((0, 1), repeat=len(factors))
        if sum(levels) % 2 == 0
    ]


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set all four options."""
    gsp = replace(config.gsp, prototypes=int(cell["prototypes"]), mu=cell["mu"], eps=cell["eps"])
    zero_shot = replace(config.zero_shot, weight=cell["zero_shot"])
    return replace(config, gsp=gsp, zero_shot=zero_shot)


run = gsp_study("screening", half_factorial(FACTORS), change)


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate the main effects and the underlying runs."""
    names, effects = losses(rows), _effects(rows)
    main = Table(
        ["factor", "levels", *names],
        [
            [label, _levels(effects, factor), *(_words(effects[it].get(factor)) for it in names)]
            for factor, label in LABELS.items()
        ],
        "Change of MAP@R from the low to the high level, in points, ± standard error; "
        f"{dataset_label(rows[0].settings)}",
    )
    scores = measured(rows, SCORES).items()
    runs = cross_table(
        list(LABELS.values()),
        {tuple(f"{level:g}" for level in it): it for it in sorted(set(map(combination, rows)))},
        {f"{loss} {label}": (loss, score) for loss in names for score, label in scores},
        grouped(rows, lambda row: (combination(row), loss_name(row))),
        scores_caption(images_of(rows), rows),
    )
    return [main, runs]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and main effects as bars."""
    count = len({combination(row) for row in rows})
    return study_section(
        rows,
        title="Which hyper-parameters matter",
        question=(
            f"{len(LABELS)} hyper-parameters at two levels each make {2 ** len(LABELS)} "
            f"combinations; {count} of them, balanced, are run on "
            f"{dataset_label(rows[0].settings)}. Which one changes MAP@R the most?"
        ),
        tables=tables(rows),
        figures={
            "The main effect of each hyper-parameter on MAP@R as a bar with its standard "
            "error, for each loss.": draw(rows)
        },
        notes=[
            "A main effect is the mean MAP@R of the runs at a factor's high level less that at its "
            "low level. Its standard error comes from the spread over seeds, pooled over "
            "combinations; with one seed there is none. In the half of all combinations where the "
            "product of the levels is fixed, main effects are mixed with effects of three factors "
            "together only."
        ],
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the main effects on MAP@R as bars, one panel per loss."""
    effects = _effects(rows)
    width = 3.7 * len(effects) + 1.2
    figure, panels = panel_row(list(effects), width, 2.9, sharex=True, sharey=True)
    ends = [0.0]
    for loss, axes in panels.items():
        style_axes(axes, f"loss {loss}", xlabel="change of MAP@R [points]", grid="x")
        axes.axvline(0, color="0.3", lw=1)
        for line, factor in enumerate(LABELS):
            if factor not in effects[loss]:
                continue
            difference, error = effects[loss][factor].difference, effects[loss][factor].error or 0.0
            sign = 1 if difference >= 0 else -1
            axes.barh(line, difference, 0.62, color=BLUE if sign > 0 else ORANGE)
            if error:
                axes.errorbar(difference, line, xerr=error, color="0.15", lw=1.2, capsize=3)
            ends.append(difference + sign * error)
            axes.annotate(
                f"{difference:+.1f}",
                (ends[-1], line),
                (4 * sign, 0),
                textcoords="offset points",
                ha="left" if sign > 0 else "right",
                va="center",
                size=8.5,
            )
    first = next(iter(panels.values()))
    levels = {factor: _levels(effects, factor) for factor in LABELS}
    ticks = [
        label if levels[factor] == NOTHING else f"{label}\n{levels[factor]}"
        for factor, label in LABELS.items()
    ]
    first.set_yticks(range(len(LABELS)), ticks)
    first.set_ylim(len(LABELS) - 0.5, -0.5)
    room = 0.18 * (max(ends) - min(ends)) or 1.0
    first.set_xlim(
        min(ends) - (room if min(ends) < 0 else room / 6),
        max(ends) + (room if max(ends) > 0 else room / 6),
    )
    return figure


def _effects(rows: Sequence[Row]) -> dict[str, Mapping[str, Effect]]:
    return {
        loss: main_effects([it for it in rows if loss_name(it) == loss], "map_at_r", 100)
        for loss in losses(rows)
    }


def _levels(effects: Mapping[str, Mapping[str, Effect]], factor: str) -> str:
    known = next((own[factor] for own in effects.values() if factor in own), None)
    return f"{known.low:g} → {known.high:g}" if known else NOTHING


def _words(effect: Effect | None) -> str:
    if effect is None:
        return NOTHING
    error = "" if effect.error is None else f" ± {effect.error:.1f}"
    return f"{effect.difference:+.1f}{error}"
