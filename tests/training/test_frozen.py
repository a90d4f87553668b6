"""A frozen backbone: map, pooling and loss learn from stored features, the model is a whole one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sumpool.bench.parallelism import Parallelism
from sumpool.data import ImageFolder, open_dataset, open_feed
from sumpool.data.feeds import map_build
from sumpool.evaluation import evaluate_retrieval
from sumpool.models import build_embedder, load
from sumpool.models.backbones import run_backbone
from sumpool.models.frozen import cut
from sumpool.training import (
    CcpConfig,
    ConfigError,
    HardwareConfig,
    OptimizerConfig,
    Outcome,
    RunFolder,
    StopConfig,
    TrainConfig,
    Trainer,
    ZeroShotConfig,
    resolve,
    run_training,
)
from sumpool.training.interrupts import Interrupts
from sumpool.training.prepare import prepare
from sumpool.training.without_folder import train_in_memory
from training.test_selection import CONFIG, draw

#: Largest difference between embeddings from stored maps, which are float16, and from images.
HALF_PRECISION = 2e-3


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("frozen") / "photos"
    for part, classes in (("train", range(8)), ("test", range(8, 13))):
        list(draw(root / part, classes))
    return root


def config_of(photos: Path, **changes: Any) -> TrainConfig:
    own = replace(
        CONFIG,
        data=str(photos),
        freeze_backbone=True,
        frozen_views=3,
        flip=True,
        cache_dir=str(photos.parent / "maps"),
    )
    return replace(own, **changes)


@pytest.mark.parametrize("blocks", [0, 2])
def test_the_model_gives_from_images_what_the_run_measured_from_maps(
    photos: Path, blocks: int
) -> None:
    trained = train_in_memory(config_of(photos, learned_blocks=blocks))
    model, dataset = trained.model, open_dataset(photos, "folder", "test")
    whole = evaluate_retrieval(model, open_feed(dataset, model.preprocessing, workers=0))
    assert trained.metrics["test"] == pytest.approx(whole.metrics, abs=0.05)
    feed = open_feed(dataset, model.preprocessing, workers=0)
    (batch,) = feed.test_batches(range(8))
    parts = cut(model.eval(), blocks)
    with torch.no_grad():
        found = parts.learned(run_backbone(parts.frozen, batch.images).half().float())
    torch.testing.assert_close(found, whole.query.vectors[:8], atol=HALF_PRECISION, rtol=0)


@pytest.mark.parametrize(
    ("blocks", "learned"), [(0, ()), (2, ("backbone.layers.3.", "backbone.layers.5."))]
)
def test_what_is_trained_is_map_and_pooling_and_last_blocks(
    photos: Path, blocks: int, learned: tuple[str, ...]
) -> None:
    trained = train_in_memory(config_of(photos, test=False, learned_blocks=blocks)).model
    start = build_embedder(trained.config)
    for name, value in start.state_dict().items():
        if name.startswith("backbone.") and name.endswith("weight") and value.ndim > 1:
            same = torch.equal(trained.state_dict()[name], value)
            assert same == (not name.startswith(learned)), name
    assert not torch.equal(trained.state_dict()["map.weight"], start.state_dict()["map.weight"])


def test_an_interrupted_run_resumes_bit_for_bit(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(photos, test=False, loss="pnca", images_per_class=1, learned_blocks=1)

    def fit(name: str, *, resume: bool = False) -> tuple[Outcome, dict[str, Tensor]]:
        prepared = prepare(config)
        if not resume:
            RunFolder.create(tmp_path / name, prepared.config, {})
        folder = RunFolder(tmp_path / name)
        trainer = Trainer(prepared.fabric, prepared.task, prepared.config, folder, progress=False)
        with prepared:
            return trainer.fit(resume=resume), prepared.model.state_dict()

    _, one = fit("whole")
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "asked", lambda self, fabric, step: step == 3)
        assert fit("part")[0].stopped == "interrupted"
    _, other = fit("part", resume=True)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.process
def test_the_model_of_a_run_is_a_whole_one(photos: Path, tmp_path: Path) -> None:
    config = config_of(photos, out=str(tmp_path / "run"), gallery=True)
    result = run_training(config, progress=False)
    model = load(tmp_path / "run")
    images = open_feed(open_dataset(photos, "folder", "test"), model.preprocessing, workers=0)
    whole = evaluate_retrieval(model, images)
    stored = torch.from_numpy(np.load(tmp_path / "run" / "evaluation/test/embeddings.npy"))
    torch.testing.assert_close(whole.query.vectors, stored, atol=HALF_PRECISION, rtol=0)
    assert result.page is not None


def test_a_second_run_loads_no_image(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train_in_memory(config_of(photos))

    def refuse(*_: Any) -> Any:
        raise AssertionError("an image was loaded")

    monkeypatch.setattr(ImageFolder, "load", refuse)
    monkeypatch.setattr(map_build, "_compute", refuse)
    assert train_in_memory(config_of(photos)).metrics == first.metrics


@pytest.mark.parametrize(
    "changes",
    [
        {"ccp": CcpConfig(enabled=True, proxies=2, candidates=3, patience=1)},
        {"loss": "pnca", "center_reg": "r1", "images_per_class": 1},
        {"loss": "xbm", "pool": "gap"},
        {"pool": "gsp", "zero_shot": ZeroShotConfig(balance=0.5)},
        {"pool": "gemean", "optimizer": OptimizerConfig(lr=1e-2, ema=0.5)},
    ],
)
def test_whatever_the_loop_trains_it_trains_on_maps(photos: Path, changes: dict[str, Any]) -> None:
    stop = StopConfig(validate_every=1, max_steps=3, monitor="precision_at_1")
    trained = train_in_memory(config_of(photos, test=False, stop=stop, **changes))
    assert trained.outcome.steps == 3


def test_token_sequences_are_maps_too(photos: Path) -> None:
    config = config_of(
        photos,
        test=False,
        backbone="vit_tiny_patch16_224",
        backbone_options={"depth": 1, "embed_dim": 12, "num_heads": 1},
        weights="none",
        resize=32,
        crop=32,
        pool="gap",
        stop=StopConfig(validate_every=2, max_steps=2),
    )
    assert train_in_memory(config).outcome.steps == 2


def test_the_map_learns_faster_than_a_network_by_default() -> None:
    config = TrainConfig(data="x", loss="panchor", freeze_backbone=True)
    frozen, tuned = resolve(config, "cub"), resolve(replace(config, freeze_backbone=False), "cub")
    assert frozen.optimizer.warmup_epochs == 0
    assert frozen.optimizer.lr is not None
    assert tuned.optimizer.lr is not None
    assert frozen.optimizer.lr > 10 * tuned.optimizer.lr
    assert resolve(frozen, "cub") == frozen


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"freeze_batch_norm": False}, "freeze_batch_norm false is for a backbone that learns"),
        ({"freeze_batch_norm_affine": True}, "freeze_batch_norm_affine is for"),
        ({"optimizer": OptimizerConfig(warmup_epochs=1.0)}, "optimizer.warmup_epochs is for"),
        ({"train_crop": 64}, "train_crop is for"),
        ({"hardware": HardwareConfig(compile=True)}, "hardware.compile is for"),
        ({"frozen_views": 0}, r"frozen_views must lie in 1\.\.1,024, got 0"),
        ({"freeze_backbone": False, "frozen_views": 2}, "no effect without --freeze-backbone"),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        resolve(replace(TrainConfig(data="x", freeze_backbone=True), **changes), "cub")


def test_a_grid_compiles_no_backbone_that_is_frozen() -> None:
    parallelism = Parallelism(1, False, {}, "a test", gpus=1, compiled=True)
    config = parallelism.configure(TrainConfig(freeze_backbone=True), cache_dir=Path("images"))
    assert config.hardware.cuda_step
    assert not config.hardware.compile
    assert config.cache_dir == "images"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("cache", ["none", "ram", "gpu"])
@pytest.mark.parametrize("recorded", [False, True])
def test_maps_are_trained_on_a_gpu_wherever_they_lie(
    photos: Path, cache: Any, recorded: bool
) -> None:
    config = config_of(photos, test=False)
    hardware = HardwareConfig("cuda", cuda_step=recorded)
    on_gpu = train_in_memory(replace(config, cache=cache, hardware=hardware)).model.cpu()
    weights, plain = (
        it.state_dict()["map.weight"] for it in (on_gpu, train_in_memory(config).model)
    )
    torch.testing.assert_close(weights, plain, atol=1e-3, rtol=1e-3)
