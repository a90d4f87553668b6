"""Figure of the cost study: step time and memory against the number of iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator


class _Look(NamedTuple):
    """Style of a line, in colors and markers that color-blind readers can tell apart."""

    label: str
    color: str
    marker: str


#: Line styles by solver, in the order of the legend.
LOOKS = {
    "autodiff": _Look("autodiff through k iterations", "#D55E00", "o"),
    "iterative": _Look("k iterations, closed-form gradient", "#E69F00", "s"),
    "exact": _Look("exact", "#0072B2", "D"),
    "fused": _Look("exact, fused", "#009E73", "^"),
    "gap": _Look("average pooling", "#000000", "x"),
}


class Measured(NamedTuple):
    """Measurements of one solver at one k."""

    solver: str  #: A key of ``LOOKS``
    k: int | None  #: Iterations; None for solvers without iterations
    step_ms: float  #: Time of a step
    memory_mib: float | None  #: Memory of a step, if measured
    #: Time of a step in the replay of a CUDA graph, if measured.
    graph_ms: float | None = None
    #: Share of misplaced weight, if measured.
    weight_error: float | None = None


def draw_against_k(rows: Sequence[Measured], *, peak: bool, title: str) -> Figure:
    """Draw step time, memory and, if measured, errors of the weights against k.

    If ``peak``, memory is the peak on the device, otherwise what is saved for the backward pass.
    """
    iterations = sorted({row.k for row in rows if row.k is not None})
    errors = any(row.weight_error is not None for row in rows)
    figure = Figure(figsize=(12.5, 4.2) if errors else (9, 4.2), layout="constrained")
    left, right, *more = figure.subplots(1, 3 if errors else 2)
    for name, look in LOOKS.items():
        own = [row for row in rows if row.solver == name]
        _line(left, own, iterations, look, lambda row: row.step_ms)
        _line(left, own, iterations, look, lambda row: row.graph_ms, faint=True)
        _line(right, own, iterations, look, lambda row: row.memory_mib)
        for axes in more:
            _line(axes, own, iterations, look, lambda row: row.weight_error)
    left.set_ylabel("forward + backward [ms]")
    if any(row.graph_ms is not None for row in rows):
        left.set_title("eager; dashed: CUDA graph replay", fontsize="small")
    right.set_ylabel("peak memory of a step [MiB]" if peak else "saved for backward [MiB]")
    for axes in (left, right, *more):
        axes.set_xlabel("iterations k")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(iterations, labels=[str(k) for k in iterations])
        axes.minorticks_off()
        axes.grid(color="0.9")
    for axes in (left, right):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.minorticks_off()
    for axes in more:
        axes.set_ylabel("share of the weight misplaced")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def _line(
    axes: Axes,
    rows: Sequence[Measured],
    iterations: list[int],
    look: _Look,
    value: Callable[[Measured], float | None],
    *,
    faint: bool = False,
) -> None:
    """Draw a curve over k, or a level line for solvers without k; nothing without measurements."""
    points = [(row.k, y) for row in rows if (y := value(row)) is not None]
    if not points:
        return
    curve = sorted((k, y) for k, y in points if k is not None)
    if not curve:
        curve = [(k, points[0][1]) for k in iterations]
    axes.plot(
        *zip(*curve, strict=True),
        color=look.color,
        marker=None if faint else look.marker,
        markersize=4,
        linestyle="--" if faint else "-",
        linewidth=1 if faint else 1.5,
        label=None if faint else look.label,
    )
