"""The figure of the cost study: step time and memory against the number of iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator


class _Look(NamedTuple):
    """How one line is drawn, in colors and markers that color-blind readers tell apart."""

    label: str
    color: str
    marker: str


#: Lines by variant, in the order of the legend.
LOOKS = {
    "autodiff": _Look("autodiff through k iterations", "#D55E00", "o"),
    "iterative": _Look("k iterations, closed-form gradient", "#E69F00", "s"),
    "exact": _Look("exact", "#0072B2", "D"),
    "fused": _Look("exact, fused", "#009E73", "^"),
}


class Measured(NamedTuple):
    """One contender at one k."""

    solver: str  #: A key of ``LOOKS``
    k: int | None  #: Iterations; None for solvers that have none
    step_ms: float  #: Time of a step
    memory_mib: float  #: Memory of a step
    weight_error: float  #: Share of the weight that is misplaced


def draw_against_k(rows: Sequence[Measured], *, peak: bool, title: str) -> Figure:
    """Step time, memory and errors of the weights against k, on one size.

    ``peak``: memory is the peak on the device, not what is saved for the backward pass.
    """
    iterations = sorted({row.k for row in rows if row.k is not None})
    figure = Figure(figsize=(12.5, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name, look in LOOKS.items():
        own = [row for row in rows if row.solver == name]
        _line(left, own, iterations, look, lambda row: row.step_ms)
        _line(middle, own, iterations, look, lambda row: row.memory_mib)
        _line(right, own, iterations, look, lambda row: row.weight_error)
    left.set_ylabel("forward + backward [ms]")
    middle.set_ylabel("peak memory of a step [MiB]" if peak else "saved for backward [MiB]")
    right.set_ylabel("share of the weight misplaced")
    for axes in (left, middle, right):
        axes.set_xlabel("iterations k")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(iterations, labels=[str(k) for k in iterations])
        axes.minorticks_off()
        axes.grid(color="0.9")
    for axes in (left, middle):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.minorticks_off()
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def _line(
    axes: Axes,
    rows: Sequence[Measured],
    iterations: list[int],
    look: _Look,
    value: Callable[[Measured], float],
) -> None:
    """A curve over k, or a level line for what has no k; nothing where nothing was measured."""
    if not rows:
        return
    curve = sorted((row.k, value(row)) for row in rows if row.k is not None)
    if not curve:
        curve = [(k, value(rows[0])) for k in iterations]
    x, y = zip(*curve, strict=True)
    axes.plot(x, y, color=look.color, marker=look.marker, markersize=4, label=look.label)
