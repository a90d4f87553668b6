"""Pretraining: what it writes, that it resumes, and how views are shifted."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from sumpool.data import DataError, write_cifar_stand_in
from sumpool.models import EmbedderConfig, build_embedder
from sumpool.training import pretraining
from sumpool.training.config import ConfigError
from sumpool.training.errors import RunError
from sumpool.training.pretrain_config import PretrainConfig
from sumpool.training.pretraining import FACTS, WEIGHTS, pretrain, shifted


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PretrainConfig:
    root = write_cifar_stand_in(
        tmp_path_factory.mktemp("cifar"), train_per_class=2, test_per_class=1
    )
    return PretrainConfig(
        str(root), "cifar100", "small_cnn", epochs=3, batch_size=50, check_counts=False
    )


def test_weights_are_those_an_embedder_starts_from(tmp_path: Path, config: PretrainConfig) -> None:
    weights = pretrain(config, tmp_path, progress=False)
    assert weights == tmp_path / WEIGHTS
    model = build_embedder(EmbedderConfig("small_cnn", str(weights), 16, "gap", crop=64))
    for name, value in load_file(weights).items():
        assert torch.equal(model.backbone.state_dict()[name], value)
    facts = json.loads((tmp_path / FACTS).read_text())
    assert facts["finished"]
    assert 0 <= facts["test_accuracy"] <= 1
    assert (facts["train_images"], facts["test_images"]) == (200, 100)


def test_a_finished_pretraining_is_left_as_it_is(
    tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, epochs=1)
    pretrain(config, tmp_path, progress=False)
    monkeypatch.setattr(pretraining, "open_dataset", None)  # would fail
    assert pretrain(config, tmp_path, progress=False) == tmp_path / WEIGHTS
    for other in ({"lr": 0.2}, {"data": str(tmp_path)}):
        with pytest.raises(RunError, match="another configuration"):
            pretrain(replace(config, **other), tmp_path, progress=False)


def test_weights_that_are_gone_are_written_again(tmp_path: Path, config: PretrainConfig) -> None:
    config = replace(config, epochs=1)
    weights = pretrain(config, tmp_path, progress=False)
    before = weights.read_bytes()
    weights.unlink()
    assert pretrain(config, tmp_path, progress=False) == weights
    assert weights.read_bytes() == before


@pytest.mark.parametrize(
    "damaged", ["{}", "[]", "{", '{"config": {}, "finished": true}', '{"config": 1, "finished": 1}']
)
def test_damaged_facts_are_named(tmp_path: Path, config: PretrainConfig, damaged: str) -> None:
    (tmp_path / FACTS).write_text(damaged)
    # Not the file alone: a checkpoint beside it may be of another configuration.
    with pytest.raises(RunError, match=rf"{FACTS} is damaged: .* remove its folder to start over"):
        pretrain(config, tmp_path, progress=False)


def test_published_images_may_have_moved(
    tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(config.data).parent)
    for counts in (False, True):
        facts = {"config": asdict(replace(config, check_counts=counts)), "finished": True}
        (tmp_path / FACTS).write_text(json.dumps(facts))
        (tmp_path / WEIGHTS).touch()
        relative = replace(config, check_counts=counts, data=Path(config.data).name)
        assert pretrain(relative, tmp_path, progress=False) == tmp_path / WEIGHTS
    assert pretrain(replace(relative, data=str(tmp_path)), tmp_path, progress=False)


def test_an_interrupted_pretraining_ends_as_the_uninterrupted_one(
    tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load_file(pretrain(config, tmp_path / "whole", progress=False))
    epoch = pretraining._Pretrainer.epoch

    def cut(self: Any, number: int) -> float:
        if number == 2:
            raise KeyboardInterrupt
        return epoch(self, number)

    monkeypatch.setattr(pretraining._Pretrainer, "epoch", cut)
    with pytest.raises(KeyboardInterrupt):
        pretrain(config, tmp_path / "parts", progress=False)
    monkeypatch.setattr(pretraining._Pretrainer, "epoch", epoch)
    assert not (tmp_path / "parts" / WEIGHTS).exists()
    resumed = load_file(pretrain(config, tmp_path / "parts", progress=False))
    assert whole.keys() == resumed.keys()
    for name in whole:
        assert torch.equal(whole[name], resumed[name])


def test_the_loss_falls(
    tmp_path: Path, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, losses = pretraining._Pretrainer.epoch, []

    def watched(self: Any, number: int) -> float:
        losses.append(epoch(self, number))
        return losses[-1]

    monkeypatch.setattr(pretraining._Pretrainer, "epoch", watched)
    pretrain(replace(config, epochs=6), tmp_path, progress=False)
    assert losses[-1] < 0.9 * losses[0]


def test_images_are_moved_and_mirrored_each_by_its_own() -> None:
    images = torch.randn(4, 3, 6, 8)
    shifts, flips = (
        torch.tensor([[0, 4], [2, 2], [4, 0], [1, 3]]),
        torch.tensor([0, 1, 0, 1]).bool(),
    )
    padded = F.pad(images, (2,) * 4)
    found = shifted(padded, 2, shifts, flips)
    for it in range(4):
        y, x = shifts[it].tolist()
        view = padded[it, :, y : y + 6, x : x + 8]
        assert torch.equal(found[it], view.flip(-1) if flips[it] else view)
    assert torch.equal(shifted(padded, 2, torch.full((4, 2), 2), torch.zeros(4).bool()), images)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lr": 0.0}, r"lr must be positive and at most 10, got 0\.0"),
        ({"lr": 1e38}, "lr must be positive and at most 10"),
        ({"lr": math.nan}, "lr must be finite, got nan"),
        ({"weight_decay": -1.0}, r"weight_decay must lie in \[0, 10\], got -1\.0"),
        ({"weight_decay": math.inf}, "weight_decay must be finite, got inf"),
        ({"epochs": 0}, r"epochs must lie in 1\.\.1,000,000, got 0"),
        ({"batch_size": 10**9}, r"batch_size must lie in 1\.\.65,536, got 1000000000"),
        ({"seed": -1}, "seed must lie in 0..2⁶³ − 1, got -1"),
        ({"seed": 2**64}, "seed must lie in 0..2⁶³ − 1"),
        ({"batch_size": 500}, "batch_size 500 must be at most the 200"),
        ({"accelerator": "tpu"}, "accelerator must be auto, cpu or cuda, got 'tpu'"),
        ({"backbone": "resnet21"}, "backbone must be one of .* did you mean"),
        ({"format": "cifar-100"}, "format must be auto or one of cifar10, .*, got 'cifar-100'"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_the_folder_free(
    tmp_path: Path, config: PretrainConfig, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        pretrain(replace(config, **changes), tmp_path, progress=False)
    assert not (tmp_path / FACTS).exists()


def test_data_of_other_kinds_is_refused_and_leaves_the_folder_free(
    tmp_path: Path, config: PretrainConfig
) -> None:
    photos = tmp_path / "photos"
    (photos / "a class").mkdir(parents=True)
    out = tmp_path / "out"
    folder = replace(config, data=str(photos), format="auto")
    with pytest.raises(DataError, match="photos is a data set of the format folder, but pretrain"):
        pretrain(folder, out, progress=False)
    with pytest.raises(DataError, match="does not exist"):
        pretrain(replace(folder, data=str(tmp_path / "typo")), out, progress=False)
    assert not out.exists()
    pretrain(replace(config, epochs=1), out, progress=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path, config: PretrainConfig) -> None:
    with pytest.raises(ConfigError, match="accelerator is cuda, but there is no CUDA device"):
        pretrain(replace(config, accelerator="cuda"), tmp_path, progress=False)
