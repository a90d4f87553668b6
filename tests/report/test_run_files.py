"""The folder of a run: read whole or in part, with what is wrong named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from report.fake_runs import make_run
from sumpool.report.run.files import read_run
from sumpool.report.run.folder import DIGESTS
from sumpool.report.run.labels import metric_table
from sumpool.system.digests import write_digests
from sumpool.system.files import StoreError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_a_run_is_read_as_it_is_written(folder: Path) -> None:
    run = read_run(folder)
    assert run.option("gsp.mu") == 0.3
    assert run.option("gsp.nothing.there") is None
    np.testing.assert_array_equal(run.log["step"], [10, 20, 30, 40])
    assert "zero_shot_loss" not in run.log  # never given
    assert sorted(run.evaluations) == ["test", "validation"]
    assert run.best_step == 20
    assert run.gallery is not None
    assert run.notes == ()


@pytest.mark.parametrize("recorded", [20, 0])
def test_the_validation_before_training_is_never_the_best(folder: Path, recorded: int) -> None:
    path, facts = folder / "validation.csv", folder / "run.json"
    header, *lines = path.read_text().splitlines()
    assert read_run(folder).before_training is None
    first = lines[1].replace("20,20,", "0,0,", 1).replace("0.3", "0.9")
    path.write_text("\n".join([header, first, *lines, ""]))
    facts.write_text(facts.read_text().replace('"best_step": 20', f'"best_step": {recorded}'))
    run = read_run(folder)
    assert run.best_step == 20
    assert run.before_training is not None
    assert run.before_training["step"] == 0
    assert "validation, before training" in [row[0] for row in metric_table(run).rows]
    empty = ",".join([*first.split(",")[:-1], ""])
    path.write_text("\n".join([header, empty, *lines, ""]))
    assert set(run.before_training) - set(read_run(folder).before_training or ()) == {
        header.split(",")[-1]
    }
    path.write_text("\n".join([header, first, ""]))
    if not recorded:
        assert read_run(folder).best_step is None


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere is no folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"holds no run: run\.json and config\.yaml missing"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StoreError, match=r"holds no run: config\.yaml missing"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.json", "{", r"run\.json is damaged"),
        ("run.json", "[]", r"run\.json is damaged: it holds list"),
        ("config.yaml", "a: [", r"config\.yaml is damaged"),
        ("config.yaml", "words", r"config\.yaml is damaged: it holds no options"),
        ("log.csv", "step,loss\n1,0.5\n2,x\n3,0.1\n", r"line 3 of .*log\.csv is damaged: '2,x'"),
        ("log.csv", "step,loss\n1,0.5\n2\n", r"line 3 of .*log\.csv is damaged"),
        ("validation.csv", "what\n1\n", r"validation\.csv is damaged: .*names no step"),
        ("evaluation/test/metrics.json", "{}", r"metrics\.json is damaged: precision_at_1 is None"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(StoreError, match=said):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        (
            "evaluation/test/metrics.json",
            '"r_precision": 0.35',
            '"r_precision": 1.35',
            "not a share",
        ),
        (
            "evaluation/test/metrics.json",
            '"r_precision": 0.35',
            '"r_precision": NaN',
            "not a finite",
        ),
        ("evaluation/test/metrics.json", '"queries": 120', '"queries": -120', "not a count"),
        ("evaluation/test/metrics.json", '"queries": 120', '"queries": true', "not a number"),
        ("run.json", '"steps": 40', '"steps": -40', "steps is -40"),
        ("run.json", '"steps": 40', '"steps": "40"', "steps is '40'"),
        ("run.json", '"versions": {"torch": "2.15.0"}', '"versions": 3', "versions is 3"),
        ("validation.csv", ",0.3,", ",3.3,", "is 3.3"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    folder: Path, name: str, before: str, after: str, said: str
) -> None:
    path = folder / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(StoreError, match=f"{path} is damaged: .*{said}"):
        read_run(folder)


@pytest.mark.parametrize("name", ["config.yaml", "run.json", "log.csv", "exhibits/arrays.npz"])
def test_any_change_to_a_file_of_a_finished_run_is_noticed(folder: Path, name: str) -> None:
    write_digests(folder, DIGESTS)
    read_run(folder)
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(StoreError, match=f"{folder / name} is damaged, or was changed"):
        read_run(folder)


def test_bytes_that_are_no_text_are_named(folder: Path) -> None:
    (folder / "log.csv").write_bytes(b"step,loss\n\xff\xfe,1\n")
    with pytest.raises(StoreError, match=r"log\.csv is damaged"):
        read_run(folder)


@pytest.mark.parametrize("cut", [1, 2, 10, 25])
def test_a_torn_last_line_is_left_out_and_noted(folder: Path, cut: int) -> None:
    path = folder / "log.csv"
    path.write_bytes(path.read_bytes()[:-cut])
    run = read_run(folder)
    np.testing.assert_array_equal(run.log["step"], [10, 20, 30])
    assert run.notes == ("log.csv: the last line is torn and left out.",)


def test_a_step_done_twice_counts_as_done_last(folder: Path) -> None:
    (folder / "log.csv").write_text("step,loss\n10,3\n20,2\n30,1\n20,5\n30,4\n")
    log = read_run(folder).log
    np.testing.assert_array_equal(log["step"], [10, 20, 30])
    np.testing.assert_array_equal(log["loss"], [3, 5, 4])


@pytest.mark.parametrize("text", ["", "step,loss\n"])
def test_a_log_without_lines_is_empty(folder: Path, text: str) -> None:
    (folder / "log.csv").write_text(text)
    assert read_run(folder).log == {}


def test_without_evaluation_the_best_validation_counts(folder: Path) -> None:
    shutil.rmtree(folder / "evaluation")
    run = read_run(folder)
    scores = run.scores("validation")
    assert scores is not None
    assert scores["mean_average_precision_at_r"] == 0.3
    assert run.scores("test") is None


def test_the_best_step_of_a_running_run_is_found_in_its_validations(folder: Path) -> None:
    facts = json.loads((folder / "run.json").read_text())
    del facts["best_step"]
    (folder / "run.json").write_text(json.dumps(facts))
    assert read_run(folder).best_step == 20
    (folder / "validation.csv").unlink()
    assert read_run(folder).best_step is None
    shutil.rmtree(folder / "evaluation")
    assert read_run(folder).scores("validation") is None
