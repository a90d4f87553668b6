"""The shared style of all figures: colors, markers, axes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb

#: Colors that color-blind readers can tell apart, and line styles and markers for print in gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#666666")
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
BLUE, ORANGE, GREEN, _, _, SKY, PURPLE, GREY = COLORS
#: Ten clearly different colors, for classes.
CLASS_COLORS = (*COLORS[:7], "#8C564B", "#B5BD00", "#111111")


def plain_text(text: str) -> str:
    r"""Escape matplotlib's special characters in ``text``.

    Example:
        >>> print(plain_text("5 $"))
        5 \$
    """
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text  # legends omit labels that begin with _


def shade(color: str, position: int, count: int) -> str:
    """Return the ``position``-th of ``count`` shades of a color, from the color to a pale one.

    Example:
        >>> shade("#000000", 0, 2), shade("#000000", 1, 2)
        ('#000000', '#8c8c8c')
    """
    pale = 0.55 * position / max(1, count - 1)
    red, green, blue = (part + pale * (1 - part) for part in to_rgb(color))
    return to_hex((red, green, blue))


def mean_and_deviation(values: Sequence[float], scale: float = 100.0) -> tuple[float, float]:
    """Return mean and sample standard deviation times ``scale``; the latter is 0 for one value."""
    scaled = [scale * value for value in values]
    return statistics.fmean(scaled), statistics.stdev(scaled) if len(scaled) > 1 else 0.0


def style_axes(
    axes: Axes, title: str, *, xlabel: str = "", ylabel: str = "", grid: str = "y"
) -> None:
    """Set title, labels and a pale grid on one axis, and hide the top and right spines."""
    axes.set_title(title, fontsize=10.5)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(True, axis="x" if grid == "x" else "y", color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def hbar_with_error(
    axes: Axes, place: float, values: Sequence[float], *, height: float, color: str
) -> float:
    """Draw the mean of ``values`` in percent as a bar with its standard deviation and a label.

    Args:
        axes: The axes to draw on.
        place: Center of the bar on the vertical axis.
        values: Shares of 1; an error bar is drawn for two or more.
        height: Height of the bar.
        color: Color of the bar.

    Returns:
        The mean in percent.
    """
    mean, deviation = mean_and_deviation(values)
    axes.barh(place, mean, height, color=color)
    if deviation:
        axes.errorbar(mean, place, xerr=deviation, color="0.15", lw=1, capsize=1.8)
    axes.annotate(
        f"{mean:.1f}",
        (mean + deviation, place),
        (3, 0),
        textcoords="offset points",
        va="center",
        size=7,
        color="0.25",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},  # above dashed lines
    )
    return mean
