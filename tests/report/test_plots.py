"""The kit of figures."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from sumpool.report.plots import legend_below, panel_row


@pytest.mark.parametrize("label", ["gap", "non-insect invertebrates", "PANCHOR, r2-far"])
def test_a_legend_is_not_wider_than_its_figure(label: str) -> None:
    figure, _ = panel_row(["one"], 5.0, 3.0)
    FigureCanvasAgg(figure)
    legend_below(figure, [Line2D([], [], label=f"{label} {place}") for place in range(12)], 12)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
