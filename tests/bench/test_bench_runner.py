"""Grids that survive their runners: nothing twice, nothing lost, failures reported."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.bench_tasks import (
    BEGUN,
    ENDED,
    fail_in_the_first_attempt,
    fail_on_odd_seeds,
    fake_cells,
    run_runner,
    train_once_until_killed,
    train_quickly,
    work_with,
)
from sumpool.bench.cells import BenchCell
from sumpool.bench.execute import CellEnd, run_cell
from sumpool.bench.execute import _resumable as resumable
from sumpool.bench.runner import run_bench
from sumpool.bench.status import bench_status
from sumpool.bench.store.store import BenchStore
from sumpool.system.executors import local
from sumpool.system.executors.local import LocalProcesses
from sumpool.system.processes import Done
from sumpool.training import RunFolder, TrainConfig

TESTS = Path(__file__).resolve().parents[1]

# A copy of a process with threads is safe here: it does nothing that they are needed for.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def one_by_one(work: Callable, cells: Sequence[BenchCell]) -> Iterator[Done]:
    """The simplest executor: this process, one cell after the other."""
    for cell in cells:
        try:
            yield Done(cell, work(cell), None)
        except Exception as error:
            yield Done(cell, None, error)


def run_here(folder: Path, cells: list[BenchCell], train: Any, **options: Any) -> Any:
    work = work_with(folder, train)
    store = BenchStore(folder)
    return run_bench(store, cells, one_by_one, progress=False, work=work, **options)


def starts(folder: Path, cell: BenchCell, file: str = BEGUN) -> int:
    path = folder / "cells" / cell.id / file
    return len(path.read_text().split()) if path.exists() else 0


def start_runner(folder: Path, train: str, cells: int, executor: str) -> Any:
    """A runner: a copy of this process, which starts at once, or a new one."""
    words = [str(folder), train, str(cells), executor]
    if executor == "forked":
        runner = multiprocessing.get_context("fork").Process(target=run_runner, args=words)
        runner.start()
        return runner
    return subprocess.Popen(
        [sys.executable, "-m", "bench.bench_tasks", *words],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )


def exit_status(runner: Any) -> int:
    if isinstance(runner, subprocess.Popen):
        return runner.wait(timeout=300)
    runner.join(300)
    return runner.exitcode


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    process = Path(f"/proc/{pid}")
    if not process.exists():
        return True  # not Linux
    # A zombie may have threads that still end, and hold its files until then.
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list((process / "task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_finished_cell_is_never_run_again(tmp_path: Path) -> None:
    cells = fake_cells(3)
    first = run_here(tmp_path, cells[:2], train_quickly)
    assert [cell.id for cell in first.done] == [cell.id for cell in cells[:2]]
    second = run_here(tmp_path, cells, train_quickly)
    assert [cell.id for cell in second.done] == [cells[2].id]
    assert [cell.id for cell in second.elsewhere] == [cell.id for cell in cells[:2]]
    assert [starts(tmp_path, cell) for cell in cells] == [1, 1, 1]
    assert run_cell(tmp_path, cells[0], train_quickly).state == "finished elsewhere"
    assert len(BenchStore(tmp_path).rows()) == 3


def test_what_a_cell_says_is_in_its_log_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (cell,) = fake_cells(1)
    assert run_cell(tmp_path, cell, train_quickly).state == "done"
    os.system("echo after")
    captured = capfd.readouterr()
    assert captured.out == "after\n"
    assert captured.err == ""
    log = (tmp_path / "cells" / cell.id / "log.txt").read_text()
    assert f"training {cell.name}" in log
    assert "attempt 1" in log
    assert "finished after" in log


def test_a_torn_start_takes_no_other_with_it(tmp_path: Path) -> None:
    (cell,) = fake_cells(1)
    store = BenchStore(tmp_path)
    store.cell_folder(cell.id).mkdir(parents=True)
    noted = store.cell_folder(cell.id) / "starts.jsonl"
    noted.write_bytes(b'{"started": "2026-01-01T00:0')
    assert run_cell(tmp_path, cell, train_quickly).state == "done"
    torn, whole = store.starts(cell.id)
    assert torn == {}
    (row,) = store.rows()
    assert (row.attempts, row.started) == (2, whole["started"])
    assert noted.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("kept", [0, 300, 700, None])
def test_a_damaged_configuration_costs_no_checkpoint(tmp_path: Path, kept: int | None) -> None:
    config = TrainConfig(loss="ms", seed=7)
    folder = RunFolder.create(tmp_path / "run", config, {})
    folder.checkpoints.save(5000, {"progress": {"seconds": 36000.0, "step": 5000}})
    stored = tmp_path / "run" / "config.yaml"
    if kept is None:
        stored.unlink()
    else:
        stored.write_bytes(stored.read_bytes()[:kept])
    assert resumable(tmp_path / "run", config) == 36000.0
    assert RunFolder.open(tmp_path / "run")[1] == config


@pytest.mark.parametrize("damage", ["no checkpoint", "unsound checkpoint", "no facts"])
def test_a_run_that_cannot_go_on_begins_anew(tmp_path: Path, damage: str) -> None:
    folder = RunFolder.create(tmp_path / "run", TrainConfig(), {})
    if damage != "no checkpoint":
        path = folder.checkpoints.save(5, {"progress": {"seconds": 1.0, "step": 5}})
        (path if damage == "unsound checkpoint" else folder.path / "run.json").write_bytes(b"{")
    assert resumable(tmp_path / "run", TrainConfig()) is None
    assert not (tmp_path / "run").exists()


def test_a_failed_cell_is_tried_again(tmp_path: Path) -> None:
    cells = fake_cells(2)
    summary = run_here(tmp_path, cells, fail_in_the_first_attempt, retries=1)
    assert len(summary.done) == 2
    assert summary.failed == []
    assert [row.attempts for row in BenchStore(tmp_path).rows()] == [2, 2]
    assert BenchStore(tmp_path).failures() == []


def test_what_fails_to_the_end_is_reported_with_its_log(tmp_path: Path) -> None:
    cells = fake_cells(4)
    summary = run_here(tmp_path, cells, fail_on_odd_seeds, retries=2)
    assert [cell.member.seed for cell in summary.done] == [0, 2]
    assert [cell.member.seed for cell, _ in summary.failed] == [1, 3]
    assert [starts(tmp_path, cell) for cell in cells] == [1, 3, 1, 3]
    failure = summary.failed[0][1]
    assert failure.attempt == 3
    assert failure.error == "ValueError: seed 1 is odd"
    assert "seed 1 is looked at" in failure.log_tail
    assert failure.log_tail.splitlines()[-1] == "ValueError: seed 1 is odd"
    assert {it.id for it in BenchStore(tmp_path).failures()} == {cells[1].id, cells[3].id}
    said = bench_status(BenchStore(tmp_path)).text()
    assert "4 cells: 2 done, 0 running, 2 failed, 0 waiting" in said
    assert f"failed in attempt 3: {cells[1].name}" in said
    # Another run tries them anew.
    again = run_here(tmp_path, cells, train_quickly)
    assert [cell.member.seed for cell in again.done] == [1, 3]


def test_cells_that_run_elsewhere_are_looked_at_again(tmp_path: Path) -> None:
    cells = fake_cells(3)
    store = BenchStore(tmp_path)
    given: list[list[str]] = []
    holding = store.claim(cells[0].id)
    assert holding.__enter__()

    def executor(work: Callable, there: Sequence[BenchCell]) -> Iterator[Done]:
        given.append([cell.id for cell in there])
        yield from one_by_one(work, there)
        holding.__exit__(None, None, None)  # the other one died without a row

    work = work_with(tmp_path, train_quickly)
    summary = run_bench(store, cells, executor, progress=False, work=work, look_again=0.01)
    assert given == [[cells[1].id, cells[2].id], [cells[0].id]]
    assert len(summary.done) == 3


def test_an_executor_that_loses_cells_is_noticed(tmp_path: Path) -> None:
    cells = fake_cells(2)

    def forgetful(work: Callable, there: Sequence[BenchCell]) -> Iterator[Done]:
        yield from one_by_one(work, there[:1])

    work = work_with(tmp_path, train_quickly)
    store = BenchStore(tmp_path)
    summary = run_bench(store, cells[::-1], forgetful, progress=False, work=work, retries=0)
    assert len(summary.done) == 1
    assert summary.failed[0][1].error == "it was not run: the executor ended before"


def test_status_shows_what_runs(tmp_path: Path) -> None:
    cells = fake_cells(3)
    store = BenchStore(tmp_path)
    run_here(tmp_path, cells, fail_on_odd_seeds, retries=0)
    more = fake_cells(3, embedding_size=64)
    run = store.cell_folder(cells[1].id) / "run"
    run.mkdir(exist_ok=True)
    (run / "log.csv").write_text("step,seconds,loss\n50,10.0,1\n100,15.0,1\n")
    with store.claim(cells[1].id):
        status = bench_status(store)
        assert status.groups[0].counts == {"done": 2, "running": 1}
        assert status.running[0].says == "step 100, 10.0 steps/s"
        assert status.running[0].pid == os.getpid()
        assert status.failures == []
        assert "3 cells: 2 done, 1 running, 0 failed, 0 waiting; about 0 s left" in status.text()
    from sumpool.bench.planned_cells import add_to_grid

    add_to_grid(store, more)
    assert [group.counts["waiting"] for group in bench_status(store).groups] == [0, 3]


def test_status_tells_copied_rows_apart_by_their_options(tmp_path: Path) -> None:
    run_here(tmp_path, fake_cells(1), train_quickly)
    run_here(tmp_path, fake_cells(1, embedding_size=64), train_quickly)
    planned = bench_status(BenchStore(tmp_path)).text()
    (tmp_path / "grid.json").unlink()
    copied = bench_status(BenchStore(tmp_path))
    assert sorted(it.changed.get("embedding_size", "") for it in copied.groups) == ["", "64"]
    assert sorted(copied.text().splitlines()) == sorted(planned.splitlines())


@pytest.mark.parametrize("executor", ["forked", pytest.param("local", marks=pytest.mark.process)])
def test_kill_9_of_a_worker_and_of_the_runner_loses_nothing(tmp_path: Path, executor: str) -> None:
    cells = fake_cells(3)
    runner = start_runner(tmp_path, "train_once_until_killed", 3, executor)
    try:
        wait_until(lambda: starts(tmp_path, cells[0]) + starts(tmp_path, cells[1]) == 2)
        workers = [
            int((tmp_path / "cells" / cell.id / BEGUN).read_text().split()[0]) for cell in cells[:2]
        ]
        os.kill(workers[0], signal.SIGKILL)
        # Another process takes the place of the dead one; the cell comes again at the end.
        wait_until(lambda: starts(tmp_path, cells[2]) == 1)
        third = int((tmp_path / "cells" / cells[2].id / BEGUN).read_text().split()[0])
        assert BenchStore(tmp_path).failures()[0].error == "its process ended with exit code -9"
        os.kill(runner.pid, signal.SIGKILL)
    finally:
        runner.kill()
        assert exit_status(runner) == -signal.SIGKILL
    # The workers die with their runner, and their claims with them.
    wait_until(lambda: not any(is_alive(pid) for pid in (workers[1], third)), 20)
    store = BenchStore(tmp_path)
    assert not any(store.is_claimed(cell.id) for cell in cells)
    summary = run_here(tmp_path, cells, train_once_until_killed)
    assert len(summary.done) == 3
    assert [starts(tmp_path, cell) for cell in cells] == [2, 2, 2]
    assert [starts(tmp_path, cell, ENDED) for cell in cells] == [1, 1, 1]
    assert {row.id for row in BenchStore(tmp_path).rows()} == {cell.id for cell in cells}
    assert BenchStore(tmp_path).damaged() == []


@pytest.mark.process
@pytest.mark.parametrize("executor", ["forked", "local"])
def test_two_runners_on_one_store_do_not_run_the_same_cell(tmp_path: Path, executor: str) -> None:
    cells = fake_cells(12)
    runners = [start_runner(tmp_path, "train_for_a_moment", 12, executor) for _ in range(2)]
    assert [exit_status(runner) for runner in runners] == [0, 0]
    assert [starts(tmp_path, cell) for cell in cells] == [1] * 12
    assert {row.id for row in BenchStore(tmp_path).rows()} == {cell.id for cell in cells}


@pytest.mark.process
def test_a_process_that_dies_is_replaced_and_its_cell_tried_again(tmp_path: Path) -> None:
    from bench.bench_tasks import die_in_the_first_attempt

    work = work_with(tmp_path, die_in_the_first_attempt)
    store, cells = BenchStore(tmp_path), fake_cells(4)
    summary = run_bench(store, cells, LocalProcesses(2), progress=False, work=work)
    assert len(summary.done) == 4
    assert [starts(tmp_path, cell, ENDED) for cell in cells] == [1] * 4


def test_threads_share_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    asked: list[tuple[int, int]] = []

    def noted(work: Any, cells: Any, jobs: int, *, threads: int) -> None:
        asked.append((jobs, threads))

    monkeypatch.setattr(local, "run_in_processes", noted)
    LocalProcesses(2)(train_quickly, fake_cells(3))
    assert asked == [(2, 3)]


def test_bad_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="retries must be at least 0, got -1"):
        run_bench(BenchStore(tmp_path), [], one_by_one, retries=-1)
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        LocalProcesses(0)


def test_ends_travel_between_processes() -> None:
    import pickle

    (cell,) = fake_cells(1)
    assert pickle.loads(pickle.dumps(cell)).id == cell.id
    assert pickle.loads(pickle.dumps(CellEnd("a", "done", 1.0))) == CellEnd("a", "done", 1.0)


@pytest.mark.process
def test_killed_again_and_again_a_grid_comes_to_its_end(tmp_path: Path) -> None:
    cells, random = fake_cells(20), Random(0)
    for _ in range(8):
        runner = start_runner(tmp_path, "train_quickly", 20, "forked")
        time.sleep(random.uniform(0.0, 0.15))
        runner.kill()
        exit_status(runner)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").glob("*.parquet")}
    wait_until(lambda: not any(BenchStore(tmp_path).is_claimed(cell.id) for cell in cells), 20)
    run_here(tmp_path, cells, train_quickly)
    store = BenchStore(tmp_path)
    assert [row.seed for row in store.rows()] == list(range(20))
    assert store.damaged() == []
    assert before == {path: path.stat().st_mtime_ns for path in before}
    # What was finished was not begun again.
    assert all(len(store.starts(row.id)) == row.attempts for row in store.rows())


def test_the_bar_counts_and_says_how_long_it_takes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work = work_with(tmp_path, fail_on_odd_seeds)
    run_bench(BenchStore(tmp_path), fake_cells(4), one_by_one, retries=1, work=work)
    said = capfd.readouterr().err
    assert "cells:  25%" in said
    assert "1 running, 1 to retry, about 0 s left" in said
    assert "2/4" in said.splitlines()[-1]
    assert "2 failed" in said.splitlines()[-1]
