"""Cells side by side: what is finished is kept, whatever happens to the rest."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumpool.report.store import ResultStore, read_arrays, read_rows
from sumpool.studies.cells import CellResult, run_cells
from sumpool.training import HardwareConfig, TrainConfig
from sumpool.training.assemble import build_fabric
from sumpool.training.quiet import LOGGERS

CELLS = [{"number": number} for number in range(4)]


def square(cell: dict[str, Any]) -> CellResult:
    number = cell["number"]
    return CellResult({"square": number**2}, {"number": np.array(number)})


def fails_at_two(cell: dict[str, Any]) -> CellResult:
    if cell["number"] == 2:
        raise ValueError("two is refused")
    return square(cell)


def builds_fabric(cell: dict[str, Any]) -> CellResult:
    build_fabric(TrainConfig(hardware=HardwareConfig("cpu", precision="bf16-mixed")))
    return square(cell)


def store(folder: Path) -> ResultStore:
    return ResultStore(folder, "squares", {})


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_come_in_the_order_of_the_cells(tmp_path: Path, jobs: int) -> None:
    rows = run_cells(store(tmp_path), CELLS, square, jobs=jobs, progress=False)
    assert [row.metrics["square"] for row in rows] == [0, 1, 4, 9]
    assert int(read_arrays(tmp_path, rows[3])["number"]) == 3


def test_what_is_stored_is_not_computed_again(tmp_path: Path) -> None:
    run_cells(store(tmp_path), CELLS[:2], square, jobs=1, progress=False)
    rows = run_cells(store(tmp_path), CELLS[:2], None, jobs=1, progress=False)  # type: ignore[arg-type]
    assert len(rows) == 2


def test_a_cell_that_fails_keeps_no_other_from_being_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two is refused") as raised:
        run_cells(store(tmp_path), CELLS, fails_at_two, jobs=2, progress=False)
    assert any("'number': 2" in note for note in raised.value.__notes__)
    assert sorted(row.cell["number"] for row in read_rows(tmp_path)) == [0, 1, 3]
    rows = run_cells(store(tmp_path), CELLS, square, jobs=1, progress=False)
    assert len(rows) == 4


def test_jobs_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        run_cells(store(tmp_path), CELLS, square, jobs=0)


def test_nothing_is_said_of_each_cell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in LOGGERS:
        caplog.set_level(logging.INFO, logger=name)
    run_cells(store(tmp_path), CELLS, builds_fabric, jobs=1, progress=False)
    assert caplog.messages == []
    builds_fabric(CELLS[0])
    assert caplog.messages == ["Using bfloat16 Automatic Mixed Precision (AMP)"]
