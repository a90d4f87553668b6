"""The smallest parts with which the training loop can be run and watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from PIL import Image
from torch import Tensor, nn

from sumpool.data import Batch, ClassBatchSampler, ImageDataset, ImageFeed, Preprocessing
from sumpool.pooling import GeneralizedSumPool2d, Pooled
from sumpool.training import (
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    RunFolder,
    StopConfig,
    TrainConfig,
    Trainer,
    ZeroShotConfig,
)
from sumpool.training.assemble import build_task
from sumpool.training.task import Validate
from sumpool.training.values.gsp import GSP_OPTIONS

SIDE = 8
CLASSES, PER_CLASS = 6, 8

#: A resolved configuration of a few steps.
CONFIG = TrainConfig(
    data="memory",
    embedding_size=8,
    loss="c2",
    weights="none",
    gsp=GspConfig(prototypes=4, mu=0.5, eps=5.0),
    zero_shot=ZeroShotConfig(weight=0.1),
    batch_size=8,
    images_per_class=2,
    optimizer=OptimizerConfig(lr=1e-2, proxy_lr_multiplier=100.0, warmup_epochs=0.0),
    stop=StopConfig(validate_every=4, patience=100, max_steps=12),
    hardware=HardwareConfig(accelerator="cpu"),
    checkpoint_seconds=0.0,
)


class Memory(ImageDataset):
    """Noisy images, one color per class."""

    def __init__(self, classes: int = CLASSES, per_class: int = PER_CLASS) -> None:
        labels = torch.arange(classes).repeat_interleave(per_class)
        # Labels with gaps, as those of a subset are.
        super().__init__(3 * labels + 1, [f"class {number}" for number in range(3 * classes)])
        generator = np.random.default_rng(0)
        base = generator.uniform(50, 200, (classes, 1, 1, 3))[labels.numpy()]
        noise = generator.normal(0, 20, (len(labels), SIDE, SIDE, 3))
        self.pixels = np.clip(base + noise, 0, 255).astype(np.uint8)

    def load(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def item_name(self, index: int) -> str:
        return f"memory/{index}"


class MemoryFeed(ImageFeed):
    """All pixels in one tensor; the views are the images themselves."""

    def __init__(self, dataset: Memory, device: torch.device | str = "cpu") -> None:
        self.dataset, self.device = dataset, torch.device(device)
        self.preprocessing = Preprocessing(resize=SIDE, crop=SIDE, augment="none", flip=False)
        pixels = torch.from_numpy(dataset.pixels).movedim(3, 1)
        self.images = self.preprocessing.normalize(pixels).to(device)

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        for chosen in sampler.batches(start):
            yield self._batch(torch.tensor(chosen))

    def test_batches(self, indices: Any = None, batch_size: int = 64) -> Iterator[Batch]:
        wanted = torch.arange(len(self.dataset)) if indices is None else torch.as_tensor(indices)
        for chosen in wanted.split(batch_size):
            yield self._batch(chosen)

    def _batch(self, chosen: Tensor) -> Batch:
        labels = self.dataset.labels[chosen].to(self.device)
        return Batch(self.images[chosen.to(self.device)], labels, chosen)


class TinyEmbedder(nn.Module):
    """A convolution, a map, GSP and ℓ2: what the loop needs of an embedder, and no more."""

    def __init__(self, seed: int = 0, dropout: float = 0.0, **options: Any) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.backbone = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.Tanh(), nn.Dropout(dropout)
            )
            self.map = nn.Conv2d(8, 8, 1, bias=False)
        self.pooling = GeneralizedSumPool2d(8, prototypes=4, mu=0.5, **options)

    def compile_backbone(self) -> None:
        self.backbone.compile(dynamic=False)

    def feature_map(self, images: Tensor) -> Tensor:
        return self.map(self.backbone(images))

    def embedding(self, pooled: Tensor, normalize: bool = True) -> Tensor:
        return nn.functional.normalize(pooled) if normalize else pooled

    def forward(
        self, images: Tensor, details: bool = False, normalize: bool = True
    ) -> Tensor | Pooled:
        pooled = self.pooling.pool(self.feature_map(images))
        embedding = self.embedding(pooled.embedding, normalize)
        return Pooled(embedding, pooled.weights, pooled.attributes) if details else embedding


@cache
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


def constant(_: nn.Module) -> dict[str, float]:
    """The same metrics for every model."""
    return {"mean_average_precision_at_r": 0.5, "precision_at_1": 0.5}


class Scripted:
    """Metrics from a script, one value per validation."""

    def __init__(self, values: list[float]) -> None:
        self.values = values
        self.calls = 0

    def __call__(self, model: nn.Module) -> dict[str, float]:
        value = self.values[min(self.calls, len(self.values) - 1)]
        self.calls += 1
        return {"mean_average_precision_at_r": value, "precision_at_1": 1 - value}


def trainer(
    config: TrainConfig = CONFIG,
    validate: Validate = constant,
    folder: Path | None = None,
    on: Fabric | None = None,
    dropout: float = 0.0,
    **changes: Any,
) -> Trainer:
    """A trainer of the tiny parts; ``changes`` go into the configuration."""
    config = replace(config, **changes)
    on = on or fabric()
    gsp = config.gsp
    options = {name: getattr(gsp, name) for name in ("spread", *GSP_OPTIONS)}
    model: Any = TinyEmbedder(config.seed, dropout, **options)
    feed = MemoryFeed(Memory(), on.device)
    task = build_task(config, model, feed, validate, on, data_set="default")
    kept = None
    if folder is not None:
        kept = RunFolder(folder)
        if not (folder / "run.json").exists():
            kept = RunFolder.create(folder, config, {})
    return Trainer(on, task, config, kept, progress=False)
