"""Rows: whole or not there, never changed, and never left out in silence."""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.bench_tasks import fake_cells
from sumpool.bench.planned_cells import add_to_grid, read_grid
from sumpool.bench.store.rows import SCHEMA, BenchRow, NotARowError, encode_row, read_row
from sumpool.bench.store.store import BenchStore
from sumpool.system.files import StoreError, write_atomic

ROW = BenchRow(
    id="0123456789abcdef",
    protocol="fair",
    data_set="cub",
    backbone="small_cnn",
    loss="c2",
    method="gsp+zs",
    fold=2,
    seed=1,
    config='{"seed": 1}',
    versions='{"python": "3.11"}',
    device="cpu",
    started="2026-01-01T00:00:00+00:00",
    duration_s=12.5,
    attempts=2,
    steps=400,
    best_step=300,
    stopped="patience",
    metrics={"test.precision_at_1": 0.61, "validation.precision_at_1": 0.7},
    folder="cells/0123456789abcdef/run",
)


@pytest.fixture
def store(tmp_path: Path) -> BenchStore:
    return BenchStore(tmp_path / "bench")


def test_a_row_comes_back_as_it_was(store: BenchStore) -> None:
    whole = replace(ROW, id="f" * 16, fold=None)
    store.add(ROW)
    store.add(whole)
    again = BenchStore(store.folder)
    assert again.row(ROW.id) == ROW
    assert again.rows() == [whole, ROW]
    assert again.row("0" * 16) is None
    assert again.damaged() == []


def test_rows_are_plain_parquet_that_others_read(store: BenchStore) -> None:
    store.add(ROW)
    store.add(replace(ROW, id="f" * 16, seed=2))
    table = pq.read_table(store.folder / "rows")
    assert sorted(table["seed"].to_pylist()) == [1, 2]
    assert dict(table["metrics"].to_pylist()[0]) == ROW.metrics


def test_a_row_is_never_changed(store: BenchStore) -> None:
    store.add(ROW)
    with pytest.raises(StoreError, match="rows are never changed"):
        BenchStore(store.folder).add(replace(ROW, steps=1))
    assert BenchStore(store.folder).row(ROW.id) == ROW


def test_numbers_that_are_none_are_refused(store: BenchStore) -> None:
    with pytest.raises(StoreError, match=r"no finite number for test\.map"):
        store.add(replace(ROW, metrics={"test.map": float("nan")}))
    assert store.rows() == []


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_a_torn_file_is_reported_and_its_cell_not_finished(
    store: BenchStore, caplog: pytest.LogCaptureFixture, keep: int
) -> None:
    store.add(ROW)
    path = store.folder / "rows" / f"{ROW.id}.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    again = BenchStore(store.folder)
    with caplog.at_level(logging.WARNING):
        assert again.row(ROW.id) is None
    assert f"{path} is not a row" in caplog.text
    assert again.damaged() == [path]
    again.add(ROW)  # its cell is run again, and takes its place
    assert BenchStore(store.folder).row(ROW.id) == ROW


def test_a_row_under_the_name_of_another_cell_is_reported(
    store: BenchStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.add(ROW)
    path = store.folder / "rows" / f"{ROW.id}.parquet"
    path.rename(path.with_name("a" * 16 + ".parquet"))
    with caplog.at_level(logging.WARNING):
        assert BenchStore(store.folder).rows() == []
    assert f"it is the row of {ROW.id}" in caplog.text


def test_damage_to_a_row_is_noticed_or_without_effect(store: BenchStore) -> None:
    store.add(ROW)
    path = store.folder / "rows" / f"{ROW.id}.parquet"
    sound = path.read_bytes()
    noticed = 0
    for place in range(5, 8 * len(sound), 97):
        damaged = bytearray(sound)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert read_row(path) == ROW
        except NotARowError:
            noticed += 1
    assert noticed > 300


def test_a_row_of_earlier_versions_has_no_digest_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / f"{ROW.id}.parquet"
    values = {**asdict(ROW), "metrics": list(ROW.metrics.items())}
    pq.write_table(pa.Table.from_pylist([values], schema=SCHEMA), path)
    assert read_row(path) == ROW


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": {"test.recall_at_2": 1.5}}, r"test\.recall_at_2 is 1\.5, not a share"),
        ({"metrics": {"test.queries": -1}}, "not a count"),
        ({"steps": -3}, "steps is -3"),
        ({"config": "["}, "it is damaged"),
    ],
)
def test_numbers_out_of_range_are_no_row(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / f"{ROW.id}.parquet"
    path.write_bytes(encode_row(replace(ROW, **change)))
    with pytest.raises(NotARowError, match=message):
        read_row(path)


def test_foreign_files_are_reported(store: BenchStore, caplog: pytest.LogCaptureFixture) -> None:
    store.add(ROW)
    (store.folder / "rows" / "note.txt").write_text("hello")
    (store.folder / "rows" / ".half.part").write_text("x")  # being written by somebody
    assert [path.name for path in store.damaged()] == ["note.txt"]
    assert store.rows() == [ROW]


def test_a_writer_that_fails_leaves_nothing(store: BenchStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not be written"):
        write_atomic(tmp_path / "file" / "inside", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writers_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "value"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    writers = [threading.Thread(target=write_atomic, args=(path, it)) for it in contents]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            seen.add(path.read_bytes())
    for writer in writers:
        writer.join()
    assert seen | {path.read_bytes()} <= set(contents)
    assert [it.name for it in tmp_path.iterdir()] == ["value"]


def test_failures_are_kept_until_the_cell_is_finished(store: BenchStore) -> None:
    store.note_failure(ROW.id, 1, "first", "log")
    store.note_failure(ROW.id, 2, "ValueError: second", "the end\nof the log")
    (failure,) = BenchStore(store.folder).failures()
    assert (failure.attempt, failure.error) == (2, "ValueError: second")
    assert failure.log_tail == "the end\nof the log"
    store.add(ROW)
    assert store.failures() == []


def test_the_tail_of_a_log_is_its_last_lines(store: BenchStore) -> None:
    folder = store.cell_folder(ROW.id)
    folder.mkdir(parents=True)
    assert store.log_tail(ROW.id) == ""
    (folder / "log.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    assert store.log_tail(ROW.id, lines=2) == "line 998\nline 999"


def test_the_grid_is_the_union_of_all_that_were_run(store: BenchStore) -> None:
    cells = fake_cells(3)
    assert read_grid(store) == []
    add_to_grid(store, cells[:2])
    add_to_grid(store, cells[1:])
    found = read_grid(BenchStore(store.folder))
    assert [cell.id for cell in found] == [cell.id for cell in cells]
    assert found[2].name == cells[2].name
    (store.folder / "grid.json").write_text("{")
    with pytest.raises(StoreError, match=r"grid\.json is not a list of cells"):
        read_grid(store)


def test_grids_added_at_once_are_all_kept(store: BenchStore) -> None:
    cells = fake_cells(12)
    adders = [threading.Thread(target=add_to_grid, args=(store, [cell])) for cell in cells]
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join()
    assert {cell.id for cell in read_grid(store)} == {cell.id for cell in cells}
