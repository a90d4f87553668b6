"""The folder of a run and its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sumpool.training import RunError, RunFolder, TrainConfig
from sumpool.training.run_folder import CsvLog


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "a", TrainConfig(seed=5), {"device": "cpu"})
    with pytest.raises(RunError, match=r"holds a run already: continue it with --resume"):
        RunFolder.create(tmp_path / "a", TrainConfig(), {})
    folder, config = RunFolder.open(tmp_path / "a")
    assert config.seed == 5
    facts = folder.facts()
    assert facts["device"] == "cpu"
    assert facts["finished"] is None
    assert {"started", "command", "versions", "machine"} <= set(facts)


def test_facts_add_up(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", TrainConfig(), {})
    folder.update(steps=3)
    folder.finish(best_step=2)
    facts = folder.facts()
    assert (facts["steps"], facts["best_step"]) == (3, 2)
    assert facts["finished"]


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=f"{tmp_path} holds no run: run.json and config.yaml are missing"
    ):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_the_file_that_a_run_lacks_is_named_alone(tmp_path: Path, name: str) -> None:
    RunFolder.create(tmp_path / "a", TrainConfig(), {})
    (tmp_path / "a" / name).unlink()
    with pytest.raises(RunError, match=f"holds no run: {name} is missing"):
        RunFolder.open(tmp_path / "a")


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written to"):
        RunFolder.create(tmp_path / "file" / "run", TrainConfig(), {})
    (tmp_path / "run" / "config.yaml").mkdir(parents=True)
    with pytest.raises(RunError, match=r"config\.yaml could not be written"):
        RunFolder.create(tmp_path / "run", TrainConfig(), {})


def test_damaged_facts_are_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a", TrainConfig(), {})
    (tmp_path / "a" / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        folder.facts()


def test_a_resumed_log_keeps_what_came_before_and_drops_what_will_come_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.csv"
    log = CsvLog(path, ("step", "loss", "extra"), None)
    for step in (10, 20, 30):
        log.add({"step": step, "loss": step / 10})
    log.close()
    with path.open("a") as file:
        file.write("3")  # what a kill leaves of a line
    log = CsvLog(path, ("step", "loss", "extra"), 20)
    log.add({"step": 30, "loss": 7, "extra": 1})
    log.close()
    assert path.read_text().split() == ["step,loss,extra", "10,1.0,", "20,2.0,", "30,7,1"]


def test_a_log_refuses_columns_it_does_not_have(tmp_path: Path) -> None:
    log = CsvLog(tmp_path / "log.csv", ("step",), None)
    with pytest.raises(ValueError, match="wrong"):
        log.add({"step": 1, "wrong": 2})
    log.close()
