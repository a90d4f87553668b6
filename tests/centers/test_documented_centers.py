"""The page on centers shows what the catalog holds."""

from __future__ import annotations

from pathlib import Path

from centers.center_tables import catalog_table
from sumpool.centers import REGULARIZERS
from sumpool.centers.regularizer import MOST_CENTERS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "centers.md").read_text(encoding="utf-8")


def test_the_table_of_the_page_is_the_catalog() -> None:
    assert catalog_table() in PAGE


def test_the_page_names_the_limit_of_all_pairs() -> None:
    assert f"Up to {MOST_CENTERS:,} centers" in PAGE


def test_every_regularizer_has_a_source() -> None:
    known = (DOCS / "references.md").read_text(encoding="utf-8")
    for recipe in REGULARIZERS.values():
        assert f'<a id="{recipe.reference}"></a>' in known
