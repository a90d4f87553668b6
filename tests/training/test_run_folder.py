"""The folder of a run and its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sumpool.report.run.folder import CHECKPOINTS, CONFIG, DIGESTS, LOCK, RUN
from sumpool.system.rows import ROWS
from sumpool.training import RunError, RunFolder, TrainConfig, run_training
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


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a")
    with folder.lock():
        for attempt in (folder.check_free, RunFolder(tmp_path / "a").lock().__enter__):
            with pytest.raises(RunError, match=rf"a is in use: process {os.getpid()} on .* --out"):
                attempt()
    folder.check_free()


def test_a_second_training_of_a_folder_is_refused_before_images_are_opened(tmp_path: Path) -> None:
    for resume in (None, tmp_path):
        with RunFolder(tmp_path).lock(), pytest.raises(RunError, match="is in use"):
            run_training(TrainConfig(data="nowhere", out=str(tmp_path)), resume=resume)


@pytest.mark.parametrize("name", ["config.yaml", "report.html", "model"])
def test_files_that_no_run_made_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(RunError, match=f"{name} is not of a run and would be overwritten"):
        run_training(TrainConfig(data="nowhere", out=str(tmp_path)))
    (tmp_path / LOCK).touch()  # left by a run that was killed before it began
    RunFolder(tmp_path).check_new()
    (tmp_path / ROWS).touch()  # or by a study
    with pytest.raises(RunError, match=f"{name} is not of a run"):
        RunFolder(tmp_path).check_new()


def test_a_run_is_resumed_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"out is b, but .* is resumed where it is: leave it out"):
        run_training(TrainConfig(data="nowhere", out="b"), resume=tmp_path)


def test_the_files_of_a_finished_run_have_digests(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, TrainConfig(), {})
    (tmp_path / CHECKPOINTS).mkdir()
    (tmp_path / CHECKPOINTS / "1").touch()
    with folder.lock():
        folder.finish()
    names = [line.split("  ")[1] for line in (tmp_path / DIGESTS).read_text().splitlines()]
    assert names == [CONFIG, RUN]
    folder.drop_digests()
    assert not (tmp_path / DIGESTS).exists()


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
    (tmp_path / "run" / LOCK).touch()
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
