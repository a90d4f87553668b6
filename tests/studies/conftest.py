"""Figures are drawn coarsely and without a layout in tests, which takes a fraction of the time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from matplotlib.figure import Figure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Saves every figure at 30 dots per inch, its panels not laid out."""
    save = Figure.savefig

    def coarse(figure: Figure, out: Any, **options: Any) -> None:
        figure.set_layout_engine("none")
        save(figure, out, **{**options, "dpi": 30})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", coarse)
        return (yield)
