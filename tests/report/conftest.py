"""What tests of pages share."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from sumpool.report.html_page import Picture
from sumpool.report.run import ccp_problems, curves, map_figure


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not rendered: for tests of what a page says."""
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3)).save(buffer, "PNG")
    for module in (ccp_problems, curves, map_figure):
        monkeypatch.setattr(module, "picture", lambda _, alt: Picture(buffer.getvalue(), alt))
