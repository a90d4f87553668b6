"""Selection on the test set: all training classes are trained on, and it is said everywhere."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from report.fake_runs import PageReader, make_run
from sumpool.cli import main
from sumpool.data import open_dataset
from sumpool.report.run.comparison import comparison_table, write_comparison_page
from sumpool.report.run.page import write_run_page
from sumpool.training import (
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    RunResult,
    StopConfig,
    TrainConfig,
    run_training,
)
from sumpool.training.splits import open_splits

SAID = "selected on the test set"

#: Few steps of a small network.
CONFIG = TrainConfig(
    backbone="small_cnn",
    embedding_size=8,
    gsp=GspConfig(prototypes=4),
    batch_size=4,
    images_per_class=2,
    optimizer=OptimizerConfig(lr=3e-3),
    stop=StopConfig(validate_every=2, max_steps=6, monitor="precision_at_1"),
    hardware=HardwareConfig(accelerator="cpu", workers=0),
    resize=24,
    crop=24,
    checkpoint_seconds=0.0,
    gallery=False,
)


def with_changes(**changes: Any) -> TrainConfig:
    return replace(CONFIG, **changes)


def draw(folder: Path, classes: range, images: int = 6) -> Iterator[tuple[Path, int]]:
    random = np.random.default_rng(classes.start)
    for label in classes:
        color = random.uniform(40, 215, 3)
        for number in range(images):
            path = folder / f"class {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(color + random.normal(0, 60, (24, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(path)
            yield path, label


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes to learn from, five to be evaluated on."""
    root = tmp_path_factory.mktemp("photos")
    for part, classes in (("train", range(8)), ("test", range(8, 13))):
        list(draw(root / part, classes))
    return root


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with queries and a gallery, as a table."""
    root = tmp_path_factory.mktemp("shop")
    with (root / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "split"])
        for path, label in draw(root, range(6)):
            table.writerow([path, label, "train"])
        for path, label in draw(root, range(6, 11)):
            table.writerow([path, label, "query" if path.stem == "0" else "gallery"])
    return root / "table.csv"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def monitored(folder: Path) -> dict[int, float]:
    """The metric that decided, by step."""
    with (folder / "validation.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["step"] != "0"]  # before training
        return {int(row["step"]): float(row["precision_at_1"]) for row in rows}


def select(selection: Any, data: Path, out: Path) -> RunResult:
    config = with_changes(data=str(data), selection=selection, out=str(out))
    return run_training(config, progress=False)


@pytest.fixture(scope="module")
def fair(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run that validation classes decided."""
    return select("validation", photos, tmp_path_factory.mktemp("fair") / "run")


@pytest.fixture(scope="module")
def old(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run that the test set decided."""
    return select("test", photos, tmp_path_factory.mktemp("old") / "run")


@pytest.fixture(scope="module")
def searched(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """The same with queries and a gallery."""
    return select("test", shop, tmp_path_factory.mktemp("searched") / "run")


@pytest.mark.parametrize("data", ["photos", "shop"])
def test_without_test_no_test_image_is_opened(
    data: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []

    def watched(root: Any, name: str, split: str, **options: Any) -> Any:
        opened.append(split)
        return open_dataset(root, name, split, **options)

    monkeypatch.setattr("sumpool.training.splits.open_dataset", watched)
    images, out = str(request.getfixturevalue(data)), tmp_path / "run"
    config = with_changes(data=images, test=False, out=str(out), gallery=True)
    found = run_training(config, progress=False)
    assert opened == ["train"]
    assert list(found.metrics) == ["validation"]
    assert [it.name for it in (out / "evaluation").iterdir()] == ["validation"]


@pytest.mark.process
@pytest.mark.parametrize(("run", "trained", "queries"), [("old", 8, 30), ("searched", 6, 5)])
def test_the_test_set_decides(
    run: str, trained: int, queries: int, request: pytest.FixtureRequest
) -> None:
    found: RunResult = request.getfixturevalue(run)
    facts = json.loads((found.folder / "run.json").read_text())
    assert facts["selection"] == "test"
    assert facts["classes"] == {"train": trained, "test": 5}
    assert list(found.metrics) == ["test"]
    assert [it.name for it in (found.folder / "evaluation").iterdir()] == ["test"]
    # What was stored for the test set is what decided, at the best step and with the gallery.
    values = monitored(found.folder)
    assert list(values) == [2, 4, 6]
    assert found.metrics["test"]["precision_at_1"] == values[found.outcome.best_step]
    assert max(values.values()) == values[found.outcome.best_step]
    text = PageReader((found.folder / "report.html").read_text()).text
    assert f"%, {SAID}, over {queries} test queries" in text
    assert f"Retrieval with the best model, {SAID}" in text
    assert "were selected on the test set: the scores are better than" in text
    assert "validation (step" not in text


def test_validation_is_the_default_and_needs_no_mark(fair: RunResult) -> None:
    assert TrainConfig().selection == "validation"
    facts = json.loads((fair.folder / "run.json").read_text())
    assert facts["selection"] == "validation"
    assert facts["classes"] == {"train": 6, "validation": 2, "test": 5}
    assert SAID not in PageReader((fair.folder / "report.html").read_text()).text


def test_a_run_resumes_with_its_selection(photos: Path, old: RunResult, fair: RunResult) -> None:
    config = with_changes(data=str(photos), selection="test", out="parts", keep_checkpoints=True)
    run_training(replace(config, stop=replace(config.stop, max_steps=4)), progress=False)
    longer = TrainConfig(stop=StopConfig(max_steps=6, monitor="precision_at_1"), selection="test")
    resumed = run_training(longer, resume=Path("parts"), progress=False)
    assert resumed.metrics == old.metrics
    assert monitored(Path("parts")) == monitored(old.folder)
    assert SAID in Path("parts/report.html").read_text()
    with pytest.raises(ConfigError, match="selection is 'test', but the run was begun with"):
        run_training(TrainConfig(selection="test"), resume=fair.folder, progress=False)


def test_the_command_says_it(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--backbone=small_cnn", "--embedding-size=8", "--pool=gap", "--batch-size=4"]
    options += ["--images-per-class=2", "--stop.validate-every=1", "--stop.max-steps=1"]
    options += ["--hardware.accelerator=cpu", "--hardware.workers=0", "--gallery=false"]
    command = ["train", "--data", str(photos), "--selection", "test", "--out", "run", *options]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"the model of step 1 is kept, {SAID}" in printed
    assert f"Retrieval, {SAID}" in printed
    assert main([*command, "--fold", "1"]) == 1
    assert "fold is 1, but with selection test" in capsys.readouterr().err


def test_groups_that_were_selected_on_the_test_set_are_marked(
    fair: RunResult, old: RunResult
) -> None:
    groups = {"fair": [fair.folder], "old": [old.folder]}
    table = comparison_table(groups)
    assert [row[0] for row in table.rows] == ["fair", "old †"]
    assert table.caption.endswith(f"groups marked † were {SAID}")
    page = PageReader(write_comparison_page(groups, Path("both.html"), "both").read_text())
    assert "old †" in page.text
    assert SAID in page.text


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"fold": 1}, "fold is 1, but with selection test all training classes"),
        ({"folds": 5}, "folds is 5, but with selection test"),
        ({"validation": 0.5}, "validation is 0.5, but with selection test"),
        ({"selection": "train"}, "selection must be one of validation, test, got 'train'"),
    ],
)
def test_contradictions_are_refused(photos: Path, changes: dict[str, Any], complaint: str) -> None:
    config = with_changes(**{"data": str(photos), "selection": "test", "out": "run", **changes})
    with pytest.raises(ConfigError, match=complaint):
        run_training(config, progress=False)
    assert not Path("run").exists()


def test_data_without_a_test_part_is_refused(photos: Path) -> None:
    config = with_changes(data=str(photos / "train"), selection="test")
    with pytest.raises(ConfigError, match=r"selection is test, but .*train has no test part"):
        run_training(config, progress=False)


def test_folds_are_those_of_the_training_part(tmp_path: Path) -> None:
    """Also where the data brings a part for validation."""
    for part, classes in (("train", range(9)), ("val", range(9, 12)), ("test", range(12, 14))):
        list(draw(tmp_path / "data" / part, classes, images=2))
    config = with_changes(data=str(tmp_path / "data"))
    own = open_splits(config, progress=False)
    learned = set(own.train.labels.tolist())
    assert not learned & set(own.validation.labels.tolist())
    parts = [open_splits(replace(config, fold=fold), progress=False) for fold in (1, 2, 3, 4)]
    kept = [set(it.validation.labels.tolist()) for it in parts]
    assert set().union(*kept) == learned
    assert sum(map(len, kept)) == len(learned)
    for it, held_out in zip(parts, kept, strict=True):
        assert set(it.train.labels.tolist()) == learned - held_out
    every = open_splits(replace(config, selection="test"), progress=False)
    assert set(every.train.labels.tolist()) == learned


def test_an_unfinished_run_shows_its_best_step_under_the_name_of_the_test_set() -> None:
    run = make_run(Path("run"), selection="test", stopped="interrupted", finished=None)
    shutil.rmtree(run / "evaluation")
    text = PageReader(write_run_page(run).read_text()).text
    assert f"MAP@R 30.0 % and P@1 60.0 %, {SAID}, over 120 test queries" in text
    assert "test (step 20)" in text
    assert "validation (step 20)" not in text


def table(folder: Path, **splits: int) -> TrainConfig:
    """A CSV file with so many classes in each split."""
    lines, first = ["path,label,split"], 0
    for split, count in splits.items():
        for path, label in draw(folder, range(first, first + count), images=3):
            lines.append(f"{path.relative_to(folder)},{label},{split}")
        first += count
    (folder / "all.csv").write_text("\n".join(lines))
    return with_changes(data=str(folder / "all.csv"))


@pytest.mark.parametrize("splits", [{"Train": 8, "test": 4}, {"Train": 8, "Test": 4}, {"test": 8}])
def test_a_table_of_splits_without_training_images_is_refused(
    tmp_path: Path, splits: dict[str, int]
) -> None:
    has = ", ".join(sorted(splits))
    with pytest.raises(ConfigError, match=rf"all\.csv has no split train: it has {has}; wanted"):
        open_splits(table(tmp_path, **splits), progress=False)


def test_splits_that_are_not_used_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for unused, splits in (
        (["valid"], {"train": 5, "valid": 2, "test": 2}),
        (["val"], {"train": 5, "val": 2, "validation": 2}),
        (["gallery"], {"train": 5, "gallery": 2, "test": 2}),
        (["test"], {"train": 5, "query": 2, "gallery": 2, "test": 2}),
        ([], {"train": 5, "val": 2, "test": 2}),
    ):
        caplog.clear()
        open_splits(with_changes(data=table(tmp_path, **splits).data, test=False), progress=False)
        assert [it.getMessage() for it in caplog.records] == [
            f"{tmp_path / 'all.csv'}: the split {split} is not used" for split in unused
        ]


def test_queries_without_a_gallery_are_searched_among_themselves(tmp_path: Path) -> None:
    test = open_splits(table(tmp_path, train=5, query=2), progress=False).test
    assert test is not None
    assert (len(test.query), test.gallery) == (6, None)


def test_queries_are_not_searched_among_themselves_where_a_split_is_left(tmp_path: Path) -> None:
    config = table(tmp_path, train=5, query=2, Gallery=2)
    match = r"all\.csv has no split gallery for its queries: it has .*Gallery"
    with pytest.raises(ConfigError, match=match):
        open_splits(config, progress=False)
    assert open_splits(with_changes(data=config.data, test=False), progress=False).test is None


def test_a_test_part_that_cannot_be_measured_is_refused_before_training(tmp_path: Path) -> None:
    config = table(tmp_path, train=3, validation=2, test=1)
    match = r"all\.csv, test part: nothing can be measured: there is one class .* --test false"
    with pytest.raises(ConfigError, match=match):
        open_splits(config, progress=False)
    assert open_splits(replace(config, test=False), progress=False).test is None
