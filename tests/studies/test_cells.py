"""Cells in parallel: what is finished is kept, whatever happens to the rest."""

from __future__ import annotations

import logging
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from sumpool.studies.cells import CellResult, run_cells
from sumpool.system.fabric_logging import LOGGERS
from sumpool.system.files import StoreError
from sumpool.system.rows import ResultStore, read_arrays, read_rows
from sumpool.training import HardwareConfig, TrainConfig
from sumpool.training.assemble import build_fabric

CELLS = [{"number": number} for number in range(4)]


def square(cell: dict[str, Any]) -> CellResult:
    number = cell["number"]
    return CellResult({"square": number**2}, {"number": np.array(number)})


def fails_at_two(cell: dict[str, Any]) -> CellResult:
    if cell["number"] == 2:
        raise ValueError("two is refused")
    return square(cell)


def measures_nan_at_two(cell: dict[str, Any]) -> CellResult:
    return CellResult({"square": float("nan")}) if cell["number"] == 2 else square(cell)


def is_interrupted_at_two(cell: dict[str, Any]) -> CellResult:
    if cell["number"] == 2:
        raise KeyboardInterrupt
    return square(cell)


def builds_fabric(cell: dict[str, Any]) -> CellResult:
    build_fabric(TrainConfig(hardware=HardwareConfig("cpu", precision="bf16-mixed")))
    return square(cell)


def store(folder: Path) -> ResultStore:
    return ResultStore(folder, "squares", {})


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.process)])
def test_rows_come_in_the_order_of_the_cells(tmp_path: Path, jobs: int) -> None:
    rows = run_cells(store(tmp_path), CELLS, square, jobs=jobs, progress=False)
    assert [row.metrics["square"] for row in rows] == [0, 1, 4, 9]
    assert int(read_arrays(tmp_path, rows[3])["number"]) == 3


def test_what_is_stored_is_not_computed_again(tmp_path: Path) -> None:
    run_cells(store(tmp_path), CELLS[:2], square, jobs=1, progress=False)
    rows = run_cells(store(tmp_path), CELLS[:2], None, jobs=1, progress=False)  # type: ignore[arg-type]
    assert len(rows) == 2


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.process)])
def test_a_cell_that_fails_keeps_no_other_from_being_stored(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(ValueError, match="two is refused") as raised:
        run_cells(store(tmp_path), CELLS, fails_at_two, jobs=jobs, progress=False)
    assert any("'number': 2" in note for note in raised.value.__notes__)
    assert sorted(row.cell["number"] for row in read_rows(tmp_path)) == [0, 1, 3]
    rows = run_cells(store(tmp_path), CELLS, square, jobs=1, progress=False)
    assert len(rows) == 4


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.process)])
def test_a_cell_that_cannot_be_stored_is_one_that_failed(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(StoreError, match=r"'number': 2.*square.*nan") as raised:
        run_cells(store(tmp_path), CELLS, measures_nan_at_two, jobs=jobs, progress=False)
    assert any("the first of 1 that failed; what is" in note for note in raised.value.__notes__)
    assert sorted(row.cell["number"] for row in read_rows(tmp_path)) == [0, 1, 3]


def test_an_interrupt_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_cells(store(tmp_path), CELLS, is_interrupted_at_two, jobs=1, progress=False)
    assert [row.cell["number"] for row in read_rows(tmp_path)] == [0, 1]


def test_a_cell_that_failed_leaves_its_memory_to_the_next(tmp_path: Path) -> None:
    held: list[weakref.ref[nn.Module]] = []

    def work(cell: dict[str, Any]) -> CellResult:
        if held:
            assert held[0]() is None
            return square(cell)
        model = nn.Identity()
        held.append(weakref.ref(model))
        raise ValueError("the first is refused")

    with pytest.raises(ValueError, match="the first is refused"):
        run_cells(store(tmp_path), CELLS, work, jobs=1, progress=False)
    assert len(read_rows(tmp_path)) == 3


def test_processes_are_as_many_as_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    computed = []

    def work(cell: dict[str, Any]) -> CellResult:
        computed.append(cell)
        return square(cell)

    run_cells(store(tmp_path), CELLS, work, progress=False)
    assert computed == CELLS  # here: a core is no reason for another process


def test_jobs_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        run_cells(store(tmp_path), CELLS, square, jobs=0)


def test_nothing_is_logged_for_each_cell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in LOGGERS:
        caplog.set_level(logging.INFO, logger=name)
    run_cells(store(tmp_path), CELLS, builds_fabric, jobs=1, progress=False)
    assert caplog.messages == []
    builds_fabric(CELLS[0])
    assert caplog.messages == ["Using bfloat16 Automatic Mixed Precision (AMP)"]
