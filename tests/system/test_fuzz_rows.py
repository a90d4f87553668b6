"""Rows of studies, nearly right: rows, or an error of one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import damaged, is_read_or_refused
from sumpool.system.rows import ROWS, ResultStore, read_rows

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz")
    store = ResultStore(path, "squares", {"size": 3})
    for number in range(3):
        store.add({"number": number}, {"square": number**2 / 7}, 0.5)
    return path


@settings(max_examples=40)
@given(data=st.data())
def test_rows_are_read_or_refused(folder: Path, data: st.DataObject) -> None:
    other = folder / "damaged"
    other.mkdir(exist_ok=True)
    (other / ROWS).write_bytes(data.draw(damaged((folder / ROWS).read_bytes())))
    assert is_read_or_refused(lambda: read_rows(other))
