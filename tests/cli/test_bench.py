"""`sumpool bench` from the command line: plans, refusals, failures, and being killed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bench.bench_tasks import fail_on_odd_seeds, train_quickly
from sumpool.bench import execute
from sumpool.bench import parallelism as filling
from sumpool.bench.cells import BenchCell
from sumpool.bench.execute import TrainedCell
from sumpool.bench.parallelism import Parallelism
from sumpool.bench.store.store import BenchStore
from sumpool.cli import bench, main
from sumpool.protocols import Member
from sumpool.system.processes import Done
from sumpool.training import TrainConfig

#: Few steps of a small network.
SMALL = [
    "--backbone=small_cnn",
    "--set",
    "embedding_size=8",
    "batch_size=8",
    "optimizer.lr=1e-3",
    "stop.validate_every=3",
    "hardware.accelerator=cpu",
    "hardware.workers=0",
    "checkpoint_seconds=0",
]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight classes to learn from and four to test on, of six images in one colour each."""
    random = np.random.default_rng(0)
    root = tmp_path / "photos"
    for number in range(12):
        folder = root / ("train" if number < 8 else "test") / f"class {number}"
        folder.mkdir(parents=True)
        color = random.uniform(40, 215, 3)
        for index in range(6):
            pixels = np.clip(color + random.normal(0, 25, (52, 60, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{index}.png")
    return root


def one_by_one(work: Callable, cells: Sequence[BenchCell]) -> Iterator[Done]:
    for cell in cells:
        try:
            yield Done(cell, work(cell), None)
        except Exception as error:
            yield Done(cell, None, error)


def in_this_process(store: Any, parts: list[Any], *_: Any) -> tuple[Any, list[BenchCell]]:
    """Stands in for the executor of the command."""
    return one_by_one, [cell for part, _ in parts for cell in part]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Has cells trained in this process, by a function."""

    def use(train: Any) -> None:
        monkeypatch.setattr(execute, "train_or_resume", train)
        monkeypatch.setattr(bench, "_executor", in_this_process)

    return use


def grid(photos: Path, *more: str, action: str = "fair") -> list[str]:
    return ["bench", action, "--data", str(photos), *SMALL, *more]


def test_a_dry_run_lists_the_cells_and_trains_nothing(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(grid(photos, "--pool", "gap", "gsp", "--dry-run")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[2].split()) == "fair photos small_cnn c2 gap 1 2 3 4 0 1 2 12 0 ?"
    assert lines[3].split()[4] == "gsp+zs"
    assert "24 cells, 0 of them finished" in lines
    assert "there is no estimate of the time: no cell on photos is finished yet" in lines[-1]
    assert not Path("runs").exists()


def test_a_dry_run_tells_the_time_from_finished_cells(
    photos: Path, capsys: pytest.CaptureFixture[str], training: Callable[[Any], None]
) -> None:
    training(train_quickly)
    assert main(grid(photos, "--pool", "gap", "--seeds", "1")) == 0
    capsys.readouterr()
    assert main(grid(photos, "--pool", "gap", "gsp", "--dry-run")) == 0
    printed = capsys.readouterr().out
    assert "24 cells, 4 of them finished" in printed
    assert "the other 20 take about 0 s, one after the other" in printed


def test_a_grid_is_run_and_what_is_finished_is_not_run_again(
    photos: Path, capsys: pytest.CaptureFixture[str], training: Callable[[Any], None]
) -> None:
    training(train_quickly)
    assert main(grid(photos, "--pool=gap", "--seeds=2", "--out=b")) == 0
    assert "8 cells finished, 0 were finished before or elsewhere" in capsys.readouterr().out
    assert main(grid(photos, "--pool=gap", "--seeds=2", "--out=b")) == 0
    assert "0 cells finished, 8 were finished before or elsewhere" in capsys.readouterr().out
    assert main(["bench", "status", "--out", "b"]) == 0
    assert "8 cells: 8 done, 0 running, 0 failed, 0 waiting" in capsys.readouterr().out


def queue(photos: Path, *more: str) -> Path:
    """A file with two grids, one of them twice, and more lines."""
    path = Path("queue.txt")
    first = shlex.join(["sumpool", *grid(photos, "--pool=gap", "--seeds=2")])
    second = shlex.join(["sumpool", *grid(photos, "--pool=gmp", "--seeds=2")])
    path.write_text("\n".join(["# two poolings", first, "", second, first, *more]), "utf-8")
    return path


def test_the_grids_of_a_queue_advance_together(
    photos: Path, capsys: pytest.CaptureFixture[str], training: Callable[[Any], None]
) -> None:
    order: list[tuple[int, int | None, str]] = []

    def train(cell: BenchCell, run: Path) -> TrainedCell:
        order.append((cell.member.seed, cell.member.fold, cell.method))
        return train_quickly(cell, run)

    training(train)
    assert main(["bench", "queue", str(queue(photos)), "--out=b"]) == 0
    assert "16 cells finished, 0 were finished before" in capsys.readouterr().out
    assert order == [(s, f, m) for s in (0, 1) for f in (1, 2, 3, 4) for m in ("gap", "gmp")]
    assert main(grid(photos, "--pool=gmp", "--seeds=2", "--out=b")) == 0
    assert "0 cells finished, 8 were finished before or elsewhere" in capsys.readouterr().out


def test_a_dry_run_of_a_queue_lists_its_cells_once(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "queue", str(queue(photos)), "--dry-run"]) == 0
    assert "16 cells, 0 of them finished" in capsys.readouterr().out


def test_cells_of_a_queue_that_share_their_names_are_told_apart(
    photos: Path, capsys: pytest.CaptureFixture[str], training: Callable[[Any], None]
) -> None:
    training(train_quickly)
    lines = [
        shlex.join(["sumpool", *grid(photos, f"gsp.mu={mu}", "--pool=gsp", "--seeds=1")])
        for mu in (0.25, 0.5)
    ]
    Path("queue.txt").write_text("\n".join(lines), "utf-8")
    for command in (["queue", "queue.txt", "--dry-run"], ["queue", "queue.txt"], ["status"]):
        assert main(["bench", *command, "--out=b"]) == 0
        printed = capsys.readouterr().out
        if command != ["queue", "queue.txt"]:
            assert " gsp.mu=0.25 " in printed
            assert " gsp.mu=0.5 " in printed
            assert "all with " in printed


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sumpool study cost", "line 6: a line must begin with `sumpool bench` and one of fair,"),
        ("sumpool bench fair --data x --jobs 3", "line 6: --jobs is for the whole queue: give it"),
        ("sumpool bench fair --data x --dry-run", "line 6: --dry-run is for the whole queue"),
        ("sumpool bench fair --help", "line 6: --help is not an option of a grid"),
        ("sumpool bench fair --data x --pol gap", "line 6: unknown option --pol: did you mean"),
        ("sumpool bench fair --data x --pool gop", "line 6: pool"),
        ("sumpool bench fair --data 'x", "line 6: No closing quotation"),
        ("sumpool bench fair --data nowhere", "line 6: "),
    ],
)
def test_a_line_that_is_no_grid_is_refused_by_its_number(
    photos: Path, capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    assert main(["bench", "queue", str(queue(photos, line))]) == 1
    printed = capsys.readouterr().err
    assert complaint in printed
    assert len(printed.splitlines()) == 1


def test_a_queue_that_is_missing_or_empty_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "queue", "queue.txt"]) == 1
    assert "cannot read the queue queue.txt" in capsys.readouterr().err
    Path("queue.txt").write_text("# nothing\n", "utf-8")
    assert main(["bench", "queue", "queue.txt"]) == 1
    assert "the queue queue.txt has no commands" in capsys.readouterr().err


def test_failures_are_reported_with_the_end_of_their_log(
    photos: Path, capsys: pytest.CaptureFixture[str], training: Callable[[Any], None]
) -> None:
    training(fail_on_odd_seeds)
    more = ["--pool=gap", "--seeds=2", "--folds", "1", "--out=b", "--retries=0"]
    assert main(grid(photos, *more)) == 1
    captured = capsys.readouterr()
    assert "1 cell finished, 0 were finished before or elsewhere, 1 failed" in captured.out
    name = "fair photos small_cnn c2 gap fold 1 seed 1"
    assert f"failed in attempt 1: {name}\n  ValueError: seed 1 is odd" in captured.err
    assert "    seed 1 is looked at" in captured.err
    assert "log.txt" in captured.err
    assert "no score without fold 1, seed 1; fold 2, seed 0" in captured.err
    assert main(["bench", "status", "--out", "b"]) == 0
    assert f"failed in attempt 1: {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--loss", "c9"], "loss must be one of c1, c2"),
        (["--pool", "gup"], "pool must be one of gap"),
        (
            ["--loss", "c2", "pnca", "--set", "images_per_class=4"],
            "fair photos small_cnn pnca gap fold 1 seed 0: images_per_class is 4",
        ),
        (["--data", "cub"], "the data folder data does not exist; give --root"),
        (["--data", "nothing"], "data must be one of cub"),
        (["--set", "stop.max_step=1"], "set names no option of `sumpool train`: 'stop.max_step'"),
        (["--gpus", "0.1"], "--gpus and --cpus need --ray: they are shares of a Ray cluster"),
        (["--gpus", "0.1", "--dry-run"], "--gpus and --cpus need --ray"),
        (["--ray", "auto", "--jobs", "2"], "--jobs is for this machine"),
        (["--ray", "auto", "--cpus", "-1", "--dry-run"], "cpus must be more than 0, got -1"),
        (["--ray", "auto", "--gpus", "1.5"], "gpus must be in [0, 1] or a whole number, got 1.5"),
        (["--backbone", "net9"], "backbone must be one of bn_inception"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is(
    photos: Path, capsys: pytest.CaptureFixture[str], more: list[str], complaint: str
) -> None:
    assert main(grid(photos, "--pool", "gap", "--out", "b", *more)) == 1
    assert f"sumpool: error: {complaint}" in capsys.readouterr().err
    assert not Path("b").exists()


@pytest.mark.parametrize(
    "more", [["--jobs", "0"], ["--ccp", "maybe"], ["--retries", "-1"], ["--seeds", "no"]]
)
def test_arguments_that_are_none_are_refused(photos: Path, more: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(grid(photos, *more))
    assert end.value.code == 2


def test_a_folder_without_a_benchmark_has_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "status", "--out", "nowhere"]) == 1
    assert "nowhere holds no benchmark" in capsys.readouterr().err


def test_a_status_is_shown_again_and_again(
    photos: Path,
    capsys: pytest.CaptureFixture[str],
    training: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training(train_quickly)
    main(grid(photos, "--pool=gap", "--seeds=1", "--out=b"))
    capsys.readouterr()
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(bench.time, "sleep", wait)
    assert main(["bench", "status", "--out", "b", "--watch", "--every", "2"]) == 130
    assert capsys.readouterr().out.count("4 cells: 4 done") == 3
    assert waited == [2.0, 2.0, 2.0]


@pytest.mark.process
def test_help_needs_no_torch() -> None:
    script = (
        "import sys; from sumpool.cli import main\n"
        "try: main(['bench', 'fair', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0
    assert "sumpool bench fair --data cub --loss c2 --pool gap gsp" in ended.stdout


def start(arguments: list[str]) -> subprocess.Popen[str]:
    # A process that is started in the background may have been started to ignore Ctrl-C.
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sumpool.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def running(store: BenchStore, cells: list[str]) -> dict[str, int]:
    return {id: store.holder(id)["pid"] for id in cells if store.is_claimed(id)}


@pytest.mark.process
def test_real_runs_survive_kill_9_of_worker_and_runner(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every validation keeps a checkpoint, and there are enough steps to be killed in.
    more = ["stop.max_steps=120", "stop.patience=100", "--pool", "gap", "--seeds", "1"]
    arguments = grid(photos, *more, "--out", "b", "--jobs", "2")
    store = BenchStore(Path("b").absolute())

    def checkpoints() -> list[str]:
        return [path.parts[-4] for path in store.folder.glob("cells/*/run/checkpoints/*.ckpt")]

    runner = start(arguments)
    try:
        wait_until(lambda: len(set(checkpoints())) >= 2)
        seen = sorted(set(checkpoints()))
        victims = running(store, seen)
        assert len(victims) >= 1
        os.kill(next(iter(victims.values())), signal.SIGKILL)
        wait_until(lambda: len(store.failures()) == 1)
        assert "exit code -9" in store.failures()[0].error
        runner.kill()
    finally:
        runner.kill()
        said = runner.communicate()[0]
    ids = [path.name for path in (store.folder / "cells").iterdir()]
    wait_until(lambda: not running(store, ids), 60)  # the processes died with their runner
    assert set(checkpoints()) >= set(seen) - {row.id for row in store.rows()}, said
    finished_before = {row.id for row in store.rows()}

    monkeypatch.setattr(bench, "_executor", in_this_process)
    assert main(arguments) == 0
    rows = BenchStore(store.folder).rows()
    assert [row.fold for row in rows] == [1, 2, 3, 4]
    assert {row.steps for row in rows} == {120}
    resumed = [row for row in rows if row.id in seen and row.id not in finished_before]
    for row in resumed:
        assert row.attempts >= 2
        assert "resumes from step" in (store.folder / "cells" / row.id / "log.txt").read_text()
    assert all(len(store.starts(id)) == 1 for id in finished_before)
    assert checkpoints() == []  # of finished cells nobody needs them
    assert store.damaged() == []

    # What was interrupted and gone on with is what it would have been without.
    assert main([*arguments, "--out", "c"]) == 0
    others = BenchStore(Path("c").absolute()).rows()
    assert [row.metrics for row in others] == [row.metrics for row in rows]


@pytest.mark.process
def test_ctrl_c_keeps_checkpoints_of_what_runs(photos: Path) -> None:
    more = ["stop.max_steps=100000", "stop.patience=100000", "--pool=gap", "--seeds=1", "--folds"]
    runner = start(grid(photos, *more, "1", "--out", "b", "--jobs", "1"))
    store = BenchStore(Path("b").absolute())
    try:
        wait_until(lambda: bool(list(store.folder.glob("cells/*/run/checkpoints/*.ckpt"))))
        os.kill(runner.pid, signal.SIGINT)
        said = runner.communicate(timeout=60)[0]
    finally:
        runner.kill()
        runner.communicate()
    assert runner.returncode == 130
    assert "0 finished cells are kept in b, and checkpoints of unfinished ones" in said
    (cell,) = (store.folder / "cells").iterdir()
    assert list(cell.glob("run/checkpoints/*.ckpt"))
    assert "stopped by SIGTERM after step" in (cell / "log.txt").read_text()
    assert not store.is_claimed(cell.name)


@pytest.mark.parametrize(
    ("given", "compiled"),
    [([], True), (["hardware.compile=false"], False), (["stop.patience=5"], True)],
)
def test_what_is_set_is_not_chosen_for_the_user(
    given: list[str], compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Parallelism(4, False, {"workers": 1}, "for a test", gpus=1, compiled=True)
    monkeypatch.setattr(filling, "auto_jobs", lambda: gpu)
    options: Any = SimpleNamespace(ray=None, gpus=0.0, cpus=1, jobs="auto")
    cell = BenchCell("fair", "cub", "gap", Member(seed=0, fold=1), TrainConfig(format="cub"))
    with ExitStack() as stack:
        _, (fitted,) = bench._executor(BenchStore(tmp_path), [([cell], given)], options, stack)
    assert fitted.config.hardware.compile is compiled
    assert fitted.config.hardware.cuda_step
