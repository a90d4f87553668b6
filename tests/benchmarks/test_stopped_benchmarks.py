"""A benchmark that is stopped keeps what it had measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


def stored(out: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return results


def stopping(work: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """``work`` that is interrupted when it is called once more than ``calls`` times."""
    left = iter(range(calls))

    def working(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return work(*arguments)

    return working


def test_steps_of_training_are_kept_after_each_turn_of_the_feeds(
    load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = load("training")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(training, "open_feeds", lambda *_: ("cub", {"random": None, "ram": None}))
    words = ["--data", "x", "--feeds", "random", "ram", "--rounds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(training, "steps_per_second", stopping(lambda *_: 20.0, 7))
    with pytest.raises(KeyboardInterrupt):
        training.main(words)
    assert not stored(tmp_path)["complete"]
    # The last turn was not whole: its one number would have nothing to be divided by.
    assert {
        (row["pool"], row["feed"]): len(row["steps_per_second"]) for row in stored(tmp_path)["rows"]
    } == {("gap", "random"): 2, ("gap", "ram"): 2, ("gsp", "random"): 1, ("gsp", "ram"): 1}
    assert "medians of up to 2 rounds" in (tmp_path / "table.md").read_text(encoding="utf-8")
    monkeypatch.setattr(training, "steps_per_second", lambda *_: 20.0)
    training.main(words)
    assert stored(tmp_path)["complete"]
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "medians of 2 rounds" in table
    assert "| gsp | eager | ram | 20.0 | 640 | 1.00 |" in table
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "table.md"}


@pytest.mark.process  # compiles
def test_times_of_sinkhorn_are_kept_after_each_size(
    load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinkhorn = load("sinkhorn")
    monkeypatch.setattr(sinkhorn, "QUICK_SIZES", ((2, 9, 4, 3), (2, 9, 5, 3)))
    words = ["--quick", "--device", "cpu", "--out", str(tmp_path)]
    measure = sinkhorn.measure
    monkeypatch.setattr(sinkhorn, "measure", stopping(measure, 1))
    with pytest.raises(KeyboardInterrupt):
        sinkhorn.main(words)
    assert [row["m"] for row in stored(tmp_path)["rows"]] == [4]
    assert not stored(tmp_path)["complete"]
    assert "| 2 | 9 | 4 | 3 | eager |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    monkeypatch.setattr(sinkhorn, "measure", measure)
    sinkhorn.main(words)
    assert [row["m"] for row in stored(tmp_path)["rows"]] == [4, 5]
    assert stored(tmp_path)["complete"]
