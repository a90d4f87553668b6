"""Rows of benchmarks, nearly right: the same row, or none with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.bench_tasks import fake_cells, train_quickly
from fuzzing import damaged
from sumpool.bench.execute import run_cell
from sumpool.bench.store.store import ROWS, BenchStore

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (cell,) = fake_cells(1)
    run_cell(folder, cell, train_quickly)
    return next((folder / ROWS).iterdir())


@settings(max_examples=40)
@given(data=st.data())
def test_a_row_is_the_same_or_left_out(sound: Path, data: st.DataObject) -> None:
    expected = BenchStore(sound.parents[1]).rows()
    path = sound.parents[1] / "damaged" / ROWS / sound.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.draw(damaged(sound.read_bytes())))
    store = BenchStore(path.parents[1])
    assert store.rows() in (expected, [])
    assert store.rows() or store.damaged() == [path]
