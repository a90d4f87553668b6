"""The glyph study resumes what an interrupt leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sumpool.report.run.folder import LOCK
from sumpool.studies import cells
from sumpool.studies.glyphs import experiment as glyphs
from sumpool.system.rows import ROWS
from sumpool.training import TrainConfig
from sumpool.training.config import write_config
from sumpool.training.run_folder import RunFolder


def interrupted_training(config: TrainConfig, *, resume: Path | None, **_options: bool) -> Any:
    """Begins a run, or opens the one that is there, and is interrupted."""
    if resume is None:
        RunFolder.create(Path(config.out), config, {"resumed": False})
    else:
        folder, _ = RunFolder.open(resume)
        folder.update(resumed=True)
    return SimpleNamespace(outcome=SimpleNamespace(stopped="interrupted", signal=2))


def test_a_run_begins_anew_until_it_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glyphs, "run_training", interrupted_training)
    folder = glyphs.cell_folder(tmp_path, "GAP", 0)
    folder.mkdir(parents=True)
    (folder / LOCK).touch()
    write_config(TrainConfig(), folder / "config.yaml")  # and then came an interrupt
    for resumed in (False, True):
        with pytest.raises(KeyboardInterrupt):
            glyphs.run(tmp_path, quick=True, jobs=1, progress=False)
        assert RunFolder(folder).facts()["resumed"] is resumed


@pytest.mark.parametrize("ran_before", [False, True])
def test_force_deletes_runs_only_where_the_study_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran_before: bool
) -> None:
    monkeypatch.setattr(glyphs, "run_training", interrupted_training)
    monkeypatch.setattr(glyphs, "warm_start", lambda testbed, *_, **__: testbed)
    own = [tmp_path / name / "notes.txt" for name in ("runs", "warm-start")]
    for file in own:
        file.parent.mkdir()
        file.touch()
    if ran_before:
        (tmp_path / ROWS).touch()
    with pytest.raises(KeyboardInterrupt):
        glyphs.run(tmp_path, quick=True, force=True, jobs=1, progress=False)
    assert [file.exists() for file in own] == [not ran_before] * 2


def test_quick_cells_run_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyphs, "run_training", interrupted_training)
    monkeypatch.setattr(glyphs, "warm_start", lambda testbed, *_, **__: testbed)
    monkeypatch.setattr(cells, "usable_cores", lambda: 2)
    with pytest.raises(KeyboardInterrupt):  # only here is the training a made-up one
        glyphs.run(tmp_path, quick=True, progress=False)


def test_finished_cells_need_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    stored = Path(__file__).parents[2] / "docs/results/glyphs/rows.jsonl"
    (tmp_path / stored.name).write_bytes(stored.read_bytes())
    monkeypatch.setattr(glyphs, "warm_start", never)
    rows = glyphs.run(tmp_path, progress=False)
    assert [row.cell["seed"] for row in rows] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
