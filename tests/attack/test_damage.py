"""Flipped bits and files cut short are refused in one line, or do not change results."""

from __future__ import annotations

import logging
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attack.attacks import Attacks, how_many
from bench.bench_tasks import fake_cells, train_quickly, work_with
from sumpool import load
from sumpool.bench import run_bench
from sumpool.bench.store.store import ROWS, BenchStore
from sumpool.cli import main
from sumpool.cli.errors import describe
from sumpool.protocols import Member
from sumpool.protocols.run_results import MemberResult, read_images
from sumpool.report.run.files import read_run
from sumpool.report.run.folder import EVALUATION, MODEL
from sumpool.search import Index
from sumpool.studies.cells import CellResult
from sumpool.system.processes import Done
from sumpool.system.rows import ResultStore, read_arrays, read_rows
from sumpool.training.checkpoint import Checkpoints

pytestmark = [pytest.mark.attack, pytest.mark.timeout(0)]

#: Damages of each folder; `make test-attack` has 200.
DAMAGES = how_many("damages", 20)


@dataclass(frozen=True)
class Target:
    """A folder, the files in it that are attacked, and what is read of it as results."""

    folder: Path
    files: list[Path]
    read: Callable[[Path], list[Any]]


def _vectors(folder: Path) -> list[Any]:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return [load(folder)(images).numpy().tobytes()]


def _run(folder: Path) -> list[Any]:
    run = read_run(folder)
    metrics = {part: dict(values) for part, values in run.evaluations.items()}
    found: list[Any] = [*metrics.items(), *_vectors(folder)]
    for part in metrics:
        query, _ = read_images(MemberResult(Member(None, 0), folder, {}), part)
        found += [query.labels.tolist(), list(query.names), query.vectors.tobytes()]
    return found


def _checkpoints(folder: Path) -> list[Any]:
    state = Checkpoints(folder).load()
    # Resuming from either one ends in the same bytes; test_kills has that.
    assert state is None or torch.equal(state["weights"], torch.full((500,), state["step"]))
    return []


def _rows(folder: Path) -> list[Any]:
    return [(row, dict(row.metrics)) for row in BenchStore(folder).rows()]


def _study(folder: Path) -> list[Any]:
    return [
        (row, {name: value.tolist() for name, value in read_arrays(folder, row).items()})
        for row in read_rows(folder)
    ]


def _index(folder: Path) -> list[Any]:
    index = Index.open(folder)
    found = [(match.id, match.similarity) for match in index.search(0, 5)]
    return [index.images.to_pylist(), index.vectors.tobytes(), *found, *_vectors(folder / MODEL)]


@pytest.fixture(scope="module")
def targets(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    home = tmp_path_factory.mktemp("folders")
    run = home / "run"
    small = ["--backbone=small_cnn", "--embedding-size=8", "--gsp.prototypes=4", "--batch-size=8"]
    small += ["--images-per-class=2", "--optimizer.lr=1e-3", "--stop.validate-every=3"]
    small += [
        "--recipe=papers",
        "--stop.max-steps=6",
        "--hardware.accelerator=cpu",
        "--hardware.workers=0",
    ]
    assert main(["train", "--data", str(photos), *small, "--out", str(run)]) == 0
    index = home / "index"
    assert main(["index", "--data", str(photos), "--model", str(run), "--out", str(index)]) == 0
    checkpoints = home / "checkpoints"
    for step in (1.0, 2.0):
        Checkpoints(checkpoints).save(
            int(step), {"step": step, "weights": torch.full((500,), step)}
        )
    bench = BenchStore(home / "bench")

    def in_turn(work: Any, cells: Any) -> Any:
        return (Done(cell, work(cell), None) for cell in cells)

    work = work_with(bench.folder, train_quickly)
    run_bench(bench, fake_cells(4), in_turn, work=work, progress=False)
    store = ResultStore(home / "study", "squares", {"size": 3})
    for number in range(4):
        found = CellResult({"square": number**2 / 7}, {"numbers": np.arange(30.0)})
        store.add({"number": number}, found.metrics, 0.5, found.arrays)

    def files(folder: Path, *patterns: str) -> list[Path]:
        found = [it for pattern in patterns for it in folder.rglob(pattern) if it.is_file()]
        assert found
        return sorted(it.relative_to(folder) for it in found)

    evaluated = files(run, f"{EVALUATION}/*/*")
    return {
        "model folder": Target(run / MODEL, files(run / MODEL, "*"), _vectors),
        "run folder": Target(run, files(run, "*"), _run),
        "evaluation of a run": Target(run, evaluated, _run),
        "checkpoints": Target(checkpoints, files(checkpoints, "*"), _checkpoints),
        "rows of a benchmark": Target(bench.folder, files(bench.folder, f"{ROWS}/*"), _rows),
        "bench folder": Target(bench.folder, files(bench.folder, "*"), _rows),
        "index folder": Target(index, files(index, "*"), _index),
        "study folder": Target(store.folder, files(store.folder, "*"), _study),
    }


NAMES = [
    "model folder",
    "run folder",
    "evaluation of a run",
    "checkpoints",
    "rows of a benchmark",
    "bench folder",
    "index folder",
    "study folder",
]


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_refused_or_without_effect(
    name: str,
    targets: dict[str, Target],
    tmp_path: Path,
    attacks: Attacks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = targets[name]
    folder = tmp_path / "damaged"
    shutil.copytree(target.folder, folder)
    expected = target.read(folder)
    draw = random.Random(name)
    for number in range(DAMAGES):
        path = target.files[number % len(target.files)]
        content = (folder / path).read_bytes()
        attack, damaged = _damaged(content, draw)
        (folder / path).write_bytes(damaged)
        try:
            outcome, why = _outcome(target, folder, expected, caplog)
        finally:
            (folder / path).write_bytes(content)
        attacks.note(name, f"{path}: {attack}", outcome, why)
    attacks.check()


def _damaged(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    if not content or draw.random() < 0.2:
        length = draw.randrange(len(content)) if content else 0
        return f"cut to {length} of {len(content)} bytes", content[:length]
    bit = draw.randrange(8 * len(content))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return f"bit {bit} of {8 * len(content)}", bytes(changed)


def _outcome(
    target: Target, folder: Path, expected: list[Any], caplog: pytest.LogCaptureFixture
) -> tuple[str, str]:
    caplog.clear()
    try:
        with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = target.read(folder)
    except Exception as error:
        line = describe(error)
        if line is None:
            return "failed", f"{type(error).__name__}: {error}"
        return ("refused", "") if "\n" not in line else ("failed", "more than one line")
    if found == expected:
        return "no effect", ""
    if (warned or caplog.records) and all(it in expected for it in found):
        return "left out with a warning", ""
    return "failed", "other results, without a word"
