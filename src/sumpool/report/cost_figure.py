"""The figure of the cost study: step time and memory against the number of iterations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator


class _Look(NamedTuple):
    """How one line is drawn; colours are told apart by colour-blind readers, as are markers."""

    label: str
    color: str
    marker: str


#: Lines by variant, in the order of the legend.
LOOKS = {
    "autodiff": _Look("autodiff through k iterations", "#D55E00", "o"),
    "iterative": _Look("k iterations, closed-form gradient", "#E69F00", "s"),
    "exact": _Look("exact", "#0072B2", "D"),
    "fused": _Look("exact, fused", "#009E73", "^"),
    "gap": _Look("average pooling", "#000000", "x"),
}


def draw(results: str | Path, out: str | Path) -> None:
    """Draw step time and memory against k from the stored results of the pooling benchmark.

    Solvers that do not iterate are level lines. Memory is the peak of device memory where it was
    measured, else what is saved for the backward pass; the axis says which.

    Args:
        results: A ``results.json`` that ``benchmarks/pooling.py`` wrote.
        out: The image to write; its suffix names the format.

    Raises:
        ValueError: If the results hold no measurement against k.
    """
    stored: dict[str, Any] = json.loads(Path(results).read_text(encoding="utf-8"))
    rows = [
        row
        for row in stored["rows"]
        if row["section"] == "growth" and row["axis"] == "k" and row["eager"]
    ]
    iterations = sorted({row["k"] for row in rows if row["k"]})
    if not iterations:
        raise ValueError(f"{results} holds no measurement against k: run the section growth")
    peak = any(row["peak_bytes"] for row in rows)
    memory = "peak_bytes" if peak else "saved_bytes"

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, look in LOOKS.items():
        own = [row for row in rows if _kind(row) == name]
        _line(left, own, iterations, look, lambda row: row["eager"]["median_ms"])
        replayed = [row for row in own if row["graph"]]
        _line(left, replayed, iterations, look, lambda row: row["graph"]["median_ms"], faint=True)
        weighed = [row for row in own if row[memory] is not None]
        _line(right, weighed, iterations, look, lambda row: row[memory] / 2**20)
    graphs = any(row["graph"] for row in rows)
    left.set_ylabel("forward + backward [ms]")
    if graphs:
        left.set_title("eager; dashed: CUDA graph replay", fontsize="small")
    right.set_ylabel("peak memory of a step [MiB]" if peak else "saved for backward [MiB]")
    for axes in (left, right):
        axes.set_xlabel("iterations k")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(iterations, labels=[str(k) for k in iterations])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.minorticks_off()
        axes.grid(color="0.9")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    size = rows[0]["size"]
    figure.suptitle(
        f"{stored['machine']['device_name']}: {size['B']} images, {size['h']}×{size['w']} features "
        f"of {size['d']}, {size['m']} prototypes, {rows[0]['dtype']}",
        fontsize="medium",
    )
    figure.savefig(out, dpi=150)


def _kind(row: dict[str, Any]) -> str:
    variant: str = row["variant"]
    return variant.partition("-")[0] if row["k"] else variant


def _line(
    axes: Axes,
    rows: list[dict[str, Any]],
    iterations: list[int],
    look: _Look,
    value: Callable[[dict[str, Any]], float],
    *,
    faint: bool = False,
) -> None:
    """A curve over k, or a level line for what has no k."""
    if not rows:
        return
    if rows[0]["k"]:
        rows = sorted(rows, key=lambda row: int(row["k"]))
        x, y = [row["k"] for row in rows], [value(row) for row in rows]
    else:
        x, y = iterations, [value(rows[0])] * len(iterations)
    axes.plot(
        x,
        y,
        color=look.color,
        marker=None if faint else look.marker,
        markersize=4,
        linestyle="--" if faint else "-",
        linewidth=1 if faint else 1.5,
        label=None if faint else look.label,
    )
