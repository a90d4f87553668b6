"""``sumpool train --recipe``: best unless told otherwise, what is typed wins, the run keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from sumpool.cli import main
from sumpool.training.config import ConfigError, TrainConfig, config_from_dict, read_config
from sumpool.training.values.recipes import RECIPES

#: A small network, few steps.
SMALL = [
    *("--backbone=small_cnn", "--embedding-size=8", "--gsp.prototypes=4", "--crop=24"),
    *("--resize=24", "--batch-size=8", "--stop.max-steps=4", "--stop.validate-every=2"),
    *("--hardware.accelerator=cpu", "--hardware.workers=0", "--gallery=false"),
]


def configured(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[TrainConfig, dict[str, Any]]:
    """What ``sumpool train`` makes of the arguments."""
    with pytest.raises(SystemExit) as end:
        main(["train", "--data", "x", *arguments, "--print_config"])
    assert end.value.code == 0
    values = yaml.safe_load(capsys.readouterr().out)
    values.pop("resume")
    return config_from_dict(values), values


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five classes of four images: fewer than a batch has places."""
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for number in range(5):
        folder = tmp_path / "photos" / f"class {number}"
        folder.mkdir(parents=True)
        for image in range(4):
            pixels = draws.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{image}.png")
    return tmp_path / "photos"


def test_what_is_typed_wins_over_a_file_wherever_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "options.yaml"
    file.write_text("seed: 3\nbatch_size: 24\n")
    for arguments in (["--seed=5", f"--config={file}"], ["--config", str(file), "--seed", "5"]):
        config, _ = configured(arguments, capsys)
        assert (config.seed, config.batch_size) == (5, 24)


def test_best_is_the_default_and_what_is_typed_wins(capsys: pytest.CaptureFixture[str]) -> None:
    config, values = configured([], capsys)
    assert config.recipe == "best"
    for name, setting in RECIPES["best"].options.items():
        group, _, key = name.partition(".")
        assert (values[group][key] if key else values[group]) == setting.value, name
    config, _ = configured(["--embedding-size", "128", "--optimizer.name=adam"], capsys)
    assert (config.embedding_size, config.optimizer.name) == (128, "adam")
    assert config.batch_size == RECIPES["best"].options["batch_size"].value


def test_the_papers_are_the_plain_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = configured(["--recipe", "papers"], capsys)
    assert config == TrainConfig(data="x", recipe="papers")


def test_a_file_may_name_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("recipe: papers\nloss: ms\n")
    config, _ = configured(["--config", str(path)], capsys)
    assert config == TrainConfig(data="x", recipe="papers", loss="ms")


def test_auto_freezes_the_backbone_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    auto = ["--recipe=auto", "--hardware.accelerator=cpu"]
    assert configured(auto, capsys)[0].freeze_backbone
    assert not configured([*auto, "--freeze-backbone", "false"], capsys)[0].freeze_backbone


def test_an_unknown_recipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--data", "x", "--recipe", "bst"])
    assert "--recipe must be best or papers or auto" in capsys.readouterr().err


@pytest.mark.process
def test_a_small_folder_trains_and_the_run_keeps_its_recipe(
    photos: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sumpool")
    command = ["train", "--data", str(photos), "--recipe=auto", "--cache-dir=maps", "--out=run"]
    assert main([*command, *SMALL]) == 0
    assert "no GPU: recipe auto trains on features of the frozen network, about" in caplog.text
    stored = read_config(Path("run/config.yaml"))
    assert (stored.recipe, stored.loss, stored.freeze_backbone) == ("auto", "panchor", True)
    assert stored.images_per_class == 4  # two classes of three a batch
    assert json.loads(Path("run/run.json").read_text())["stopped"] == "max_steps"
    assert "recipe auto" in Path("run/report.html").read_text()
    assert main(["train", "--resume", "run"]) == 0
    assert main(["train", "--resume", "run", "--recipe", "papers"]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "recipe is 'papers', but the run was begun with 'auto'" in error


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "--gsp.mu=0.5",
            "using pooling gsp, because gsp.mu is given; choose another with --pool\n",
        ),
        ("--gsp.mu=0.5 --pool=gsp", ""),
        ("--gsp.mu=0.5 --recipe=papers", ""),
        ("--seed=1", ""),
    ],
)
def test_a_pooling_that_nobody_named_is_said(
    typed: str,
    said: str,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise ConfigError("that was all")

    monkeypatch.setattr("sumpool.training.run_training", stop)
    assert main(["train", "--data", str(photos), *typed.split()]) == 1
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--init=nowhere", "there is no folder nowhere"),
        ("--weights=now.pth", "weights must be packaged, none, timm or a file, got 'now.pth'"),
    ],
)
def test_a_model_to_start_from_is_looked_for_before_images_are_checked(
    typed: str, words: str, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(photos), typed]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
