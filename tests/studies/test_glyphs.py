"""The glyph study resumes what an interrupt leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sumpool.report.run.folder import LOCK
from sumpool.studies.glyphs import experiment as glyphs
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


def test_finished_cells_need_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    stored = Path(__file__).parents[2] / "docs/results/glyphs/rows.jsonl"
    (tmp_path / stored.name).write_bytes(stored.read_bytes())
    monkeypatch.setattr(glyphs, "warm_start", never)
    rows = glyphs.run(tmp_path, progress=False)
    assert [row.cell["seed"] for row in rows] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
