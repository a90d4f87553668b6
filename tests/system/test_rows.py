"""The store of results: what is written stays, what is torn is found, nothing is mixed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from sumpool.system.files import StoreError
from sumpool.system.rows import ResultStore, read_arrays, read_rows

SETTINGS = {"size": 3, "margins": (0.1, 0.2)}


def filled(folder: Path, cells: int = 3) -> ResultStore:
    store = ResultStore(folder, "study", SETTINGS)
    for seed in range(cells):
        cell = {"method": "a", "seed": seed}
        store.add(cell, {"score": seed / 10}, 1.5, {"x": np.arange(seed + 1)})
    return store


def test_rows_and_arrays_come_back_as_they_were_stored(tmp_path: Path) -> None:
    filled(tmp_path)
    rows = read_rows(tmp_path)
    assert [row.cell for row in rows] == [{"method": "a", "seed": seed} for seed in range(3)]
    assert [row.metrics["score"] for row in rows] == [0.0, 0.1, 0.2]
    assert rows[0].settings == {"size": 3, "margins": [0.1, 0.2]}
    np.testing.assert_array_equal(read_arrays(tmp_path, rows[2])["x"], [0, 1, 2])


def test_a_stored_cell_is_found_by_a_new_store(tmp_path: Path) -> None:
    filled(tmp_path)
    again = ResultStore(tmp_path, "study", SETTINGS)
    assert again.find({"seed": 1, "method": "a"}) == read_rows(tmp_path)[1]
    assert again.find({"seed": 1, "method": "b"}) is None


def test_a_row_that_could_not_be_written_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    before = read_rows(tmp_path)
    monkeypatch.setattr("sumpool.system.rows.os.fsync", Mock(side_effect=OSError(28, "No space")))
    with pytest.raises(StoreError, match="could not be written: No space"):
        store.add({"method": "b", "seed": 0}, {"score": 0.5}, 1.5)
    monkeypatch.undo()
    assert read_rows(tmp_path) == before
    store.add({"method": "b", "seed": 0}, {"score": 0.5}, 1.5)
    assert len(read_rows(tmp_path)) == len(before) + 1


def test_rows_whose_file_cannot_be_looked_at_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    before = read_rows(tmp_path)
    monkeypatch.setattr(Path, "stat", Mock(side_effect=OSError(116, "Stale file handle")))
    with pytest.raises(StoreError, match="could not be written: Stale file handle"):
        store.add({"method": "b", "seed": 0}, {"score": 0.5}, 1.5)
    monkeypatch.undo()
    assert read_rows(tmp_path) == before


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_torn_last_line_is_cut_off_and_told(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert len(read_rows(tmp_path)) == 2
    assert "torn and left out" in caplog.text
    store = ResultStore(tmp_path, "study", SETTINGS)
    assert "torn, its cell is computed again" in caplog.text
    assert store.find({"method": "a", "seed": 2}) is None
    store.add({"method": "a", "seed": 2}, {"score": 0.2}, 1.5, {"x": np.arange(3)})
    assert path.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for damage in ("{\n", '{"study": "study"}\n', "[]\n"):
        path.write_text(lines[0] + damage + lines[2])
        with pytest.raises(StoreError, match=r"line 2 of .* is not a row"):
            read_rows(tmp_path)


def test_a_changed_number_is_not_shown(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text().replace('"score": 0.1', '"score": 0.9'))
    with pytest.raises(StoreError, match=r"line 2 of .* is not a row, or damaged"):
        read_rows(tmp_path)


def test_rows_of_earlier_versions_are_read(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["sha256"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_rows(tmp_path)) == 3


def test_damaged_arrays_are_refused_by_name(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "arrays" / "a-1.npz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"a-1\.npz cannot be read: remove it"):
        read_arrays(tmp_path, read_rows(tmp_path)[1])


def test_other_configurations_are_not_mixed_in(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(StoreError, match=r"size was 3 and is now 4.*--force"):
        ResultStore(tmp_path, "study", {**SETTINGS, "size": 4})
    with pytest.raises(StoreError, match="holds results of the study 'study', not 'other'"):
        ResultStore(tmp_path, "other", SETTINGS)
    assert len(read_rows(tmp_path)) == 3
    forced = ResultStore(tmp_path, "study", {**SETTINGS, "size": 4}, force=True)
    assert forced.find({"method": "a", "seed": 0}) is None
    assert not list((tmp_path / "arrays").iterdir())


def test_a_cell_whose_arrays_are_gone_is_computed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    (tmp_path / "arrays" / "a-1.npz").unlink()
    assert store.find({"method": "a", "seed": 1}) is None
    assert "a-1.npz is missing" in caplog.text
    store.add({"method": "a", "seed": 1}, {"score": 0.9}, 1.0, {"x": np.arange(1)})
    rows = read_rows(tmp_path)
    assert len(rows) == 3
    assert [row.metrics["score"] for row in rows if row.cell["seed"] == 1] == [0.9]


def test_a_row_is_one_line_of_json(tmp_path: Path) -> None:
    filled(tmp_path, cells=2)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["cell"]["seed"] for line in lines] == [0, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_not_stored_and_named(tmp_path: Path, value: float) -> None:
    store = ResultStore(tmp_path, "study", SETTINGS)
    said = rf"the cell {{'seed': 0}} of study is not stored: its metric score is {value}$"
    with pytest.raises(StoreError, match=said):
        store.add({"seed": 0}, {"steps": 3, "score": value}, 1.0, {"x": np.arange(2)})
    assert store.find({"seed": 0}) is None
    assert not list((tmp_path / "arrays").iterdir())


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no rows\.jsonl in it"):
        read_rows(tmp_path)


@pytest.mark.parametrize("name", ["report.html", "arrays/mine.npz"])
def test_a_folder_of_something_else_gets_no_study(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(StoreError, match=r"is not of a study, there is no rows\.jsonl beside it"):
        ResultStore(tmp_path, "toy", {})
    assert not (tmp_path / "rows.jsonl").exists()
