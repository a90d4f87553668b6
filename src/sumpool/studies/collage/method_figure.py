"""Figure of many methods: bars of one score, one panel per loss."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sumpool.report.labels import loss_name, losses, rate_name
from sumpool.report.plots import legend_below, panel_row
from sumpool.report.section import grouped, values
from sumpool.report.style import (
    BLUE,
    ORANGE,
    PURPLE,
    hbar_with_error,
    mean_and_deviation,
    shade,
    style_axes,
)
from sumpool.system.rows import Row

#: Method that sees only the foreground: an upper bound, not a competitor.
BOUND = "distilled"
#: Suffix of the names of methods with 8192-dimensional embeddings.
LARGE = "-8192"
_FAMILIES = {"with GSP": ORANGE, "other poolings": BLUE, "8192 dimensions": PURPLE}


def draw(rows: Sequence[Row]) -> Figure:
    """Draw MAP@R of each method as a bar, with a whisker for the standard deviation, best on top.

    Learning rates are shades of a color; dashed lines are the bound.
    """
    methods = _ranked([row for row in rows if row.cell["method"] != BOUND])
    rates = sorted({float(row.cell["lr"]) for row in rows}, reverse=True)
    names = losses(rows)
    height = max(2.6, 0.24 * len(methods) * max(1.4, len(rates)) * 0.75 + 1.6)
    figure, panels = panel_row(names, 4.4 * len(names) + 1.0, height, sharex=True, sharey=True)
    for loss, axes in panels.items():
        own = [row for row in rows if loss_name(row) == loss]
        style_axes(axes, f"loss {loss}", xlabel="MAP@R [%]", grid="x")
        _bars(axes, own, methods, rates)
        _bounds(axes, own, rates)
    # The panels share their scale, so everything is drawn before it is set.
    first = panels[names[0]]
    first.set_xlim(0, 112 * max(values(rows, "map_at_r")))
    first.set_yticks(range(len(methods)), methods)
    first.set_ylim(len(methods) - 0.45, -0.55)
    bound = any(row.cell["method"] == BOUND for row in rows)
    legend_below(figure, _legend(methods, rates, bound=bound), 3)
    return figure


def has_gsp(method: str) -> bool:
    """Return whether a method uses generalized sum pooling, alone or combined with another.

    Example:
        >>> [has_gsp(name) for name in ("gsp-late", "gemean+gsp", "gemean")]
        [True, True, False]
    """
    return "gsp" in method.replace("-", "+").split("+")


def _ranked(rows: Sequence[Row]) -> list[str]:
    """Rank the methods, best first, by MAP@R at their best rate, averaged over losses."""

    def reached(own: list[Row]) -> float:
        best: dict[str, float] = {}
        for (loss, _), some in grouped(own, lambda row: (loss_name(row), row.cell["lr"])).items():
            mean, _ = mean_and_deviation(values(some, "map_at_r"))
            best[loss] = max(mean, best.get(loss, mean))
        return sum(best.values()) / len(best)

    scores = {
        method: reached(own)
        for method, own in grouped(rows, lambda row: str(row.cell["method"])).items()
    }
    return sorted(scores, key=lambda method: -scores[method])


def _family(method: str) -> str:
    if method.endswith(LARGE):
        return "8192 dimensions"
    return "with GSP" if has_gsp(method) else "other poolings"


def _bars(axes: Axes, rows: Sequence[Row], methods: Sequence[str], rates: Sequence[float]) -> None:
    thick = 0.8 / len(rates)
    cells = grouped(rows, lambda row: (str(row.cell["method"]), float(row.cell["lr"])))
    for line, method in enumerate(methods):
        for position, rate in enumerate(rates):
            found = values(cells.get((method, rate), []), "map_at_r")
            if not found:
                continue
            place = line + thick * (position - (len(rates) - 1) / 2)
            color = shade(_FAMILIES[_family(method)], position, len(rates))
            hbar_with_error(axes, place, found, height=0.92 * thick, color=color)


def _bounds(axes: Axes, rows: Sequence[Row], rates: Sequence[float]) -> None:
    for position, rate in enumerate(rates):
        own = [row for row in rows if row.cell["method"] == BOUND and row.cell["lr"] == rate]
        if own:
            mean, _ = mean_and_deviation(values(own, "map_at_r"))
            color = shade("#000000", position, len(rates))
            axes.axvline(mean, color=color, ls="--", lw=1.4)
            axes.annotate(
                f"{mean:.1f}",
                (mean, 0),
                (-3, 4),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="right",
                size=7,
                color="0.25",
            )


def _legend(methods: Sequence[str], rates: Sequence[float], *, bound: bool) -> list[Patch | Line2D]:
    families = {_family(method) for method in methods}
    handles: list[Patch | Line2D] = [
        Patch(color=color, label=name) for name, color in _FAMILIES.items() if name in families
    ]
    if len(rates) > 1:
        tones = ("dark", *("paler" for _ in rates[1:]))
        handles += [
            Patch(color=shade("#444444", place, len(rates)), label=f"{tone}: rate {rate_name(it)}")
            for place, (tone, it) in enumerate(zip(tones, rates, strict=True))
        ]
    if bound:
        handles.append(
            Line2D([], [], color="black", ls="--", lw=1.4, label="distilled: the foreground alone")
        )
    return handles
