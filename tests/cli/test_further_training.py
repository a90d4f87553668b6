"""Runs after the first: from a trained model, and what a finished run leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sumpool
from sumpool.cli import main
from sumpool.models.opening import start_from
from sumpool.training.config import TrainConfig, read_config
from sumpool.training.run import _free_folder

#: Few steps of a small network.
SMALL = [
    "--recipe=papers",
    *("--backbone=small_cnn", "--embedding-size=16", "--gsp.prototypes=4", "--crop=32"),
    *("--batch-size=8", "--images-per-class=2", "--stop.validate-every=2", "--stop.max-steps=2"),
    *("--hardware.accelerator=cpu", "--hardware.workers=0", "--gallery=false"),
]


def draw(root: Path, classes: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    for number in range(classes):
        (root / f"class {number}").mkdir(parents=True)
        for image in range(4):
            pixels = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / f"class {number}" / f"{image}.png")
    return root


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in ``run`` on the photos beside it."""
    folder = tmp_path_factory.mktemp("first")
    draw(folder / "my photos", 6, seed=0)
    out = ["--out", str(folder / "run")]
    assert main(["train", "--data", str(folder / "my photos"), *SMALL, *out]) == 0
    return folder


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_init_starts_from_the_weights_of_a_run_on_other_classes(
    first: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other, run = draw(tmp_path / "other", 8, seed=1), first / "run"
    # So small a rate that the weights stay where they began.
    options = [it for it in SMALL if not it.startswith("--crop")]
    options += ["--optimizer.lr=1e-30", "--optimizer.weight-decay=0", "--init", str(run)]
    with caplog.at_level("INFO"):
        assert main(["train", "--data", str(other), *options, "--out", "b"]) == 0
    assert "taken: backbone, map, pooling; new: nothing" in caplog.text
    before, after = (dict(sumpool.load(it).named_parameters()) for it in (run, "b"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = read_config(Path("b/config.yaml"))
    assert (config.init, config.crop, config.weights) == (str(run), 32, "none")


def test_init_takes_what_fits_and_says_what_is_new(first: Path) -> None:
    source = sumpool.load(first / "run")
    for change, said in (
        ({"embedding_size": 8}, "taken: backbone; new: map (weight is (8, "),
        ({"pooling_options": {"prototypes": 5}}, "taken: backbone, map; new: pooling (prototypes"),
        ({"pooling": "gap", "pooling_options": {}}, "taken: backbone, map; new: pooling (Gen"),
    ):
        config = sumpool.EmbedderConfig(**{**source.config.to_dict(), **change})
        assert said in start_from(sumpool.build_embedder(config, seed=3), source)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--backbone=resnet20"], "has small_cnn: give --backbone small_cnn"),
        (["--weights=packaged"], "has none: leave weights out"),
        (["--map-init=principal"], "map_init principal is for a map that starts anew"),
        (["--resume", "RUN"], "but the run was begun with None"),
    ],
)
def test_init_is_refused_where_it_contradicts(
    first: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(first / "run")
    options = [run if it == "RUN" else it for it in options]
    command = ["train", "--data", str(first / "my photos"), *SMALL, "--init", run, *options]
    assert main(command) == 1
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.process
def test_an_interrupted_run_with_init_needs_the_other_run_no_more(
    first: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(first / "run", tmp_path / "copy")
    command = ["train", "--data", str(first / "my photos"), *SMALL, "--init", str(copy)]
    assert main([*command, "--out", "whole", "--stop.max-steps=4"]) == 0
    assert main([*command, "--out", "b", "--keep-checkpoints"]) == 0
    shutil.rmtree(copy)
    assert main(["train", "--resume", "b", "--stop.max-steps=4"]) == 0
    tensors = "model/model.safetensors"
    assert Path("b", tensors).read_bytes() == Path("whole", tensors).read_bytes()


def test_a_finished_run_keeps_no_checkpoints_and_says_that_it_is_finished(
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = shutil.copytree(first / "run", tmp_path / "run")
    assert not (run / "checkpoints").exists()
    capsys.readouterr()
    with caplog.at_level("INFO"):
        assert main(["train", "--resume", str(run)]) == 0
    assert "is finished: nothing is left to do" in caplog.text
    assert "2 steps, ended by max_steps" in capsys.readouterr().out
    assert main(["train", "--resume", str(run), "--stop.max-steps=4"]) == 1
    assert f"start a new run from its model with --init {run}" in capsys.readouterr().err


def test_a_run_is_named_after_its_data(tmp_path: Path) -> None:
    (tmp_path / "my photos.v2").mkdir()
    for data, form, name in (
        ("my photos.v2/", "folder", "my-photos.v2"),
        ("list.csv", "csv", "list"),
        ("birds", "cub", "cub"),
    ):
        found = _free_folder(TrainConfig(data=data), form)
        assert found == Path(f"runs/{name}-c2-gsp-seed0")
