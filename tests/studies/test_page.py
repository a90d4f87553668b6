"""Pages and figures: drawn from stored results alone, with nothing outside of them."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from sumpool.studies.page import section_of, tables_of, write_page
from sumpool.studies.tokens import experiment as tokens
from sumpool.studies.tokens import margins
from sumpool.studies.toy import experiment as toy
from sumpool.studies.toy import figures as toy_figure
from sumpool.system.files import StoreError
from sumpool.system.rows import ResultStore, read_rows

TINY = {"epoch_batches": 1, "max_epochs": 2, "validation_per_class": 2, "test_per_class": 4}
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of studies, each in the folder of its name."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "QUICK", TINY)
        patch.setattr(margins, "QUICK", TINY)
        patch.setattr(margins, "MARGINS", (0.05, 0.2))
        toy.run(folder / "toy", seeds=2)
        tokens.run(folder / "tokens", seeds=1, quick=True, progress=False)
        margins.run(folder / "margins", seeds=1, quick=True, progress=False)
    return folder


@pytest.fixture(scope="module")
def page(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of these studies."""
    folders = [stored / name for name in ("toy", "tokens", "margins")]
    out = tmp_path_factory.mktemp("page") / "deep" / "page.html"
    return write_page(folders, out, "A <title>").read_text()


class Links(HTMLParser):
    """Collects everything a page refers to, and the tags it leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("img", "meta"):
            self.open.append(tag)
        assert tag not in ("script", "link", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_self_contained(page: str) -> None:
    for outside in ("http://", "https://", "url(", "@import"):
        assert outside not in page
    links = Links()
    links.feed(page)
    assert links.open == []
    assert len(links.found) == 1 + 2 + 2
    prefix = "data:image/png;base64,"
    for link in links.found:
        assert base64.b64decode(link.removeprefix(prefix), validate=True).startswith(PNG)


def test_page_fits_a_phone_and_speaks_of_its_pictures(page: str) -> None:
    assert 'content="width=device-width, initial-scale=1"' in page
    assert "prefers-color-scheme: dark" in page
    assert "<h1>A &lt;title&gt;</h1>" in page
    assert all(len(alt) > 20 for alt in re.findall(r'<img alt="([^"]*)"', page))


def test_a_figure_is_the_same_when_drawn_again(stored: Path) -> None:
    one, two = (section_of(stored / "toy").pictures[0].png for _ in range(2))
    assert one == two
    assert one.startswith(PNG)


@pytest.mark.process
def test_results_are_drawn_without_torch(stored: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from sumpool.studies.page import write_page\n"
        "stored, out = map(Path, sys.argv[1:])\n"
        "write_page([stored / n for n in ('toy', 'tokens')], out, 'Both')\n"
    )
    out = tmp_path / "page.html"
    subprocess.run([sys.executable, "-c", code, str(stored), str(out)], check=True)
    assert out.stat().st_size > 20_000


def test_table_averages_over_seeds(stored: Path) -> None:
    (toys,), (several,) = tables_of(stored / "toy"), tables_of(stored / "margins")
    lines = {row[0]: row[1:] for row in toys.rows}
    assert list(lines) == ["GAP", "P1, μ = 0.2", "P2, μ = 0.2", "P1, μ = 0.5", "P2, μ = 0.5"]
    assert lines["GAP"][0] == "50.0 ± 0.0"
    assert lines["P1, μ = 0.2"] == ["100.0 ± 0.0", "40.0 ± 0.0", "30.0 ± 0.0"]
    assert "over 2 seeds" in toys.caption
    assert len(several.rows) == 2 * 2
    assert "one seed" in several.caption


def test_section_names_its_command_and_settings(stored: Path) -> None:
    part = section_of(stored / "tokens")
    assert part.provenance.startswith("sumpool study tokens --seeds 1")
    assert any("μ = 0.3" in note and "m⁻ = 0.2" in note for note in part.notes)


def test_unknown_and_unfinished_results_are_refused(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "other", "other", {})
    store.add({"seed": 0}, {}, 0.0)
    with pytest.raises(StoreError, match="'other'; a report knows glyphs, toy, tokens, margins"):
        section_of(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "rows.jsonl").touch()
    with pytest.raises(StoreError, match="holds no finished cell"):
        tables_of(tmp_path / "empty")
    half = ResultStore(tmp_path / "half", "toy", {"block": 5})
    half.add({"method": "GAP", "mu": 1.0, "seed": 0}, {}, 0.0, {"weights": np.ones(1)})
    with pytest.raises(StoreError, match="no row of P1: run it to its end first"):
        toy_figure.draw(tmp_path / "half", read_rows(tmp_path / "half"))
