"""The page on the losses shows what the catalog holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from losses.catalog_tables import (
    columns_table,
    constants_table,
    meanings_table,
    training_table,
)
from sumpool.losses import LOSSES

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("table", [training_table, columns_table, constants_table, meanings_table])
def test_tables_of_the_page_are_those_of_the_catalog(table: Callable[[], str]) -> None:
    assert table() in (DOCS / "losses.md").read_text(encoding="utf-8")


def test_every_loss_has_a_source() -> None:
    known = (DOCS / "references.md").read_text(encoding="utf-8")
    for recipe in LOSSES.values():
        assert f'<a id="{recipe.reference}"></a>' in known
