"""Figures of a search: scores over trials, and the importance of each option."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sumpool.report.style import BLUE, GREY, ORANGE, SKY, plain_text, style_axes
from sumpool.tune.result import Result


def draw_scores(result: Result) -> Figure:
    """Draw the score of every trial, the best so far, and the score of the default."""
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "Score over trials", xlabel="trial", ylabel=f"{result.label}, validation [%]")
    for state, color, marker in (("complete", BLUE, "o"), ("pruned", GREY, "x")):
        shown = [it for it in result.trials if it.state == state and it.score is not None]
        scores = [100 * (it.score or 0.0) for it in shown]
        if shown:
            axes.plot([it.number for it in shown], scores, marker, color=color, ms=5, label=state)
    complete = [it for it in result.trials if it.state == "complete" and it.score is not None]
    best = list(accumulate((100 * (it.score or 0.0) for it in complete), max))
    numbers = [it.number for it in complete]
    axes.step(numbers, best, where="post", color=ORANGE, lw=1.6, label="best so far")
    if result.default is not None and result.default.score is not None:
        axes.axhline(100 * result.default.score, color="0.35", ls="--", lw=1, label="default")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8.5, frameon=False)
    return figure


def draw_importances(shares: Mapping[str, float]) -> Figure:
    """Draw the share of the scores' spread that each option explains."""
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    axes = figure.subplots()
    style_axes(axes, "What decides the score", xlabel="share of the spread [%]", grid="x")
    names = list(shares)[::-1]
    axes.barh(
        [plain_text(name) for name in names], [100 * shares[name] for name in names], 0.6, color=SKY
    )
    axes.set_xlim(0, 100)
    return figure
