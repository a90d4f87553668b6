"""The page on poolings lists what the catalog has."""

from __future__ import annotations

import re
from pathlib import Path

from sumpool.pooling import POOLINGS, pooling_class

PAGE = Path(__file__).resolve().parents[2] / "docs" / "poolings.md"


def test_the_table_has_every_pooling_and_says_where_its_map_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows == [(name, pooling_class(name).linear_map) for name in POOLINGS]


def test_it_says_which_poolings_need_maps() -> None:
    text = PAGE.read_text(encoding="utf-8")
    need_maps = [name for name, (_, on_tokens) in POOLINGS.items() if on_tokens is None]
    listed = re.search(r"(`[^.]*`) look at neighbou?rs", text)
    assert listed is not None
    assert re.findall(r"`([^`]+)`", listed[1])[-len(need_maps) :] == need_maps
