"""Training setups of the pooling studies: glyph or CIFAR collages, CUB, or a stand-in.

The studies share these settings, so that their cells are comparable. On glyph collages, which need
no data, a run takes half a minute on one core; on a GPU, it takes seconds on CIFAR collages and a
quarter of an hour on CUB.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sumpool.data import (
    CifarCollages,
    CifarForegrounds,
    GlyphCollages,
    detect_format,
    write_cifar_stand_in,
)
from sumpool.data.synthetic.glyphs import TILE
from sumpool.studies.shared.cifar import identify_weights
from sumpool.training import (
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ZeroShotConfig,
)
from sumpool.training.assemble import RECORDABLE
from sumpool.training.pretrain_config import PretrainConfig
from sumpool.training.pretraining import pretrain
from sumpool.training.splits import Splits, TestSet
from sumpool.training.without_folder import Trained, train_in_memory

#: Configuration shared by runs on glyph collages.
GLYPHS = TrainConfig(
    format="glyphs",
    backbone="small_cnn",
    cache="ram",
    embedding_size=64,
    loss="c2",
    gsp=GspConfig(prototypes=64, mu=0.2, eps=10.0),
    zero_shot=ZeroShotConfig(weight=0.0),
    optimizer=OptimizerConfig(lr=6e-3),
    stop=StopConfig(validate_every=100, patience=1000, max_steps=500),
    # Images are in memory: starting a loader process would take longer than loading them.
    hardware=HardwareConfig(accelerator="cpu", workers=0),
)
#: Steps of a run on CIFAR collages and of an epoch, which shows each foreground once.
STEPS, EPOCH = 1000, 250
#: Learning rates on CIFAR collages: the papers', and one that harms pretrained features less.
RATES = (1e-3, 3e-4)
#: Images on which the scores of a cell are measured.
EvaluatedOn = Literal["test", "validation"]
#: The zero-shot loss of the studies that use it: as strong as the base loss at the start. At the
#: papers' λ = 0.5 it overwhelms the base loss, see docs/zero-shot-loss.md.
ZERO_SHOT = ZeroShotConfig(weight=0.02, reduction="sum")


@dataclass(frozen=True)
class Testbed:
    """Data and settings shared by all cells of a study."""

    name: str  #: "glyphs", "CIFAR-100", "CUB" or "stand-in"
    config: TrainConfig  #: Configuration of every cell, before the changes of the study
    #: Learning rates for studies that compare several; the last is that of ``config``.
    rates: tuple[float, ...]
    #: Options that restrict a configuration to foregrounds; None if they cannot be separated from
    #: the background.
    distilled: Mapping[str, Any] | None = None
    #: Steps of average pooling before prototypes are picked among embeddings, for methods that pick
    #: them late.
    late: int = EPOCH
    evaluated_on: EvaluatedOn = "test"  #: Images on which scores are measured
    weights: str = "none"  #: Name and digest of the given weights, or "none"

    @property
    def whole(self) -> bool:
        """Whether the data must have the published number of images."""
        return self.name != "stand-in"

    def settings(self) -> dict[str, Any]:
        """Return the settings stored with every row."""
        config = self.config
        tuned = {"evaluated_on": self.evaluated_on, "folds": config.folds}
        return {
            "data": self.name,
            "backbone": config.backbone,
            "batch_size": config.batch_size,
            "images_per_class": config.images_per_class,
            "embedding_size": config.embedding_size,
            "steps": config.stop.max_steps,
            "validate_every": config.stop.validate_every,
            "precision": config.hardware.precision,
            **(tuned if self.evaluated_on == "validation" else {}),
            **({} if self.weights == "none" else {"weights": self.weights}),
        }


def open_testbed(
    out_dir: Path, data: Path | None, *, quick: bool, weights: Path | None, progress: bool
) -> Testbed:
    """Choose the testbed for ``data``; for CIFAR collages without ``weights``, pretrain first.

    ``data`` holds CIFAR-100 or CUB; None selects glyph collages or, if ``quick``, a stand-in for
    CIFAR-100. ``out_dir`` stores the pretrained backbone, the stand-in and decoded images of CUB.

    Raises:
        ConfigError: If the data is something else, or weights are given for glyphs or CUB.
        ModelError: If the weights cannot be read.
    """
    if data is None and not quick:
        return _glyphs(weights)
    if data is None:
        data = write_cifar_stand_in(out_dir / "stand-in", train_per_class=8, test_per_class=4)
        return _collages("stand-in", data, out_dir, quick=True, weights=weights, progress=progress)
    found = detect_format(data)
    if found == "cub":
        return _cub(data, out_dir, quick=quick, weights=weights)
    if found != "cifar100":
        raise ConfigError(f"data must be CIFAR-100 or CUB, but {data} holds {found}")
    return _collages("CIFAR-100", data, out_dir, quick=quick, weights=weights, progress=progress)


def _collages(
    name: str, data: Path, out_dir: Path, *, quick: bool, weights: Path | None, progress: bool
) -> Testbed:
    backbone = "small_cnn" if quick else "resnet20"
    given = identify_weights(weights, backbone)
    if weights is None:
        options = PretrainConfig(
            str(data),
            "cifar100",
            backbone,
            epochs=1 if quick else 100,
            batch_size=32 if quick else 128,
            check_counts=name != "stand-in",
        )
        weights = pretrain(options, out_dir / "pretrained", progress=progress)
    config = TrainConfig(
        data=str(data),
        format="cifar-collage",
        backbone=backbone,
        weights=str(weights),
        crop=64,
        cache="ram",
        loss="c2",
        zero_shot=ZeroShotConfig(weight=0.0),
        batch_size=32 if quick else 64,
        images_per_class=2 if quick else 4,
        optimizer=OptimizerConfig(
            lr=RATES[-1],
            weight_decay=0.0,
            beta2=0.999,
            plateau_patience=5,
            # During one pass over the foregrounds (with ten collages each), only the map and the
            # pooling are trained. Otherwise C2 collapses at the papers' rate: embeddings coincide.
            warmup_epochs=0.1,
        ),
        stop=StopConfig(validate_every=EPOCH, patience=1000, max_steps=STEPS),
        hardware=hardware(),
    )
    if quick:
        config = replace(config, stop=StopConfig(validate_every=2, patience=1000, max_steps=2))
    distilled = {"format": "cifar-foreground", "crop": 32}
    rates, late = (RATES[-1:], 1) if quick else (RATES, EPOCH)
    return Testbed(name, config, rates, distilled, late, weights=given)


def _glyphs(weights: Path | None) -> Testbed:
    if weights is not None:
        raise ConfigError(f"weights must be left out on glyphs, got {weights}")
    config = replace(
        GLYPHS,
        images_per_class=4,
        # Random weights need no protection, and the rate is already high for proxies.
        optimizer=replace(GLYPHS.optimizer, proxy_lr_multiplier=1.0, warmup_epochs=0.0),
    )
    assert config.optimizer.lr is not None
    return Testbed("glyphs", config, (config.optimizer.lr,), {"crop": TILE}, late=100)


def _cub(data: Path, out_dir: Path, *, quick: bool, weights: Path | None) -> Testbed:
    if weights is not None:
        raise ConfigError(f"weights must be left out on CUB, got {weights}")
    config = TrainConfig(
        data=str(data),
        format="cub",
        fold=1,
        cache="gpu" if torch.cuda.is_available() else "ram",
        cache_dir=str(out_dir / "images"),  # decoded once for all cells
        zero_shot=ZeroShotConfig(weight=0.0),
        hardware=hardware(),
    )
    if quick:
        config = replace(config, stop=StopConfig(validate_every=2, patience=1, max_steps=2))
    return Testbed("CUB", config, (1e-5,))


def tuning_testbed(testbed: Testbed, stop: StopConfig, folds: int, zero_shot: float) -> Testbed:
    """Apply the papers' tuning protocols on CUB; return other testbeds unchanged.

    The first of ``folds`` folds of the training classes is held out: it selects the best step, as
    configured by ``stop``, and scores are measured on it. ``zero_shot`` is λ.
    """
    if testbed.name != "CUB":
        return testbed
    config = testbed.config
    if config.stop.max_steps is None:  # not the quick mode
        config = replace(config, stop=stop)
    weight = replace(config.zero_shot, weight=zero_shot)
    config = replace(config, folds=folds, zero_shot=weight, test=False)
    return replace(testbed, config=config, evaluated_on="validation")


def hardware() -> HardwareConfig:
    """Return the fastest settings for training small networks on the available hardware."""
    if not torch.cuda.is_available():
        return HardwareConfig(accelerator="cpu", workers=0)
    return HardwareConfig(
        accelerator="cuda", precision="bf16-mixed", compile=True, cuda_step=True, workers=0
    )


def with_loss(config: TrainConfig, loss: str, seed: int) -> TrainConfig:
    """Return ``config`` with a loss and a seed; CUDA graphs record as much as the loss allows.

    A loss that waits for the device cannot be recorded; then only the network's passes are.

    Example:
        >>> config = TrainConfig(hardware=HardwareConfig(cuda_step=True))
        >>> found = with_loss(config, "ms", 0).hardware
        >>> found.cuda_step, found.cuda_graph
        (False, True)
    """
    config = replace(config, loss=loss, seed=seed)
    if loss in RECORDABLE or not config.hardware.cuda_step:
        return config
    # A recorded pass would not follow a change of the pooling.
    alike = not config.gsp.average_steps
    return replace(config, hardware=replace(config.hardware, cuda_step=False, cuda_graph=alike))


def train_on(testbed: Testbed, config: TrainConfig) -> Trained:
    """Train and evaluate ``config``, the testbed's configuration with some options changed."""
    if config.format == "glyphs":
        return train_in_memory(config, splits=_glyph_splits("letter" if config.crop else "collage"))
    if config.format == "cub":
        return train_in_memory(config)
    assert config.data is not None
    return train_in_memory(config, splits=_cifar_splits(config.data, config.format, testbed.whole))


# Read or drawn once per process.
@functools.lru_cache(maxsize=2)
def _cifar_splits(data: str, format: str, whole: bool) -> Splits:
    kind = CifarCollages if format == "cifar-collage" else CifarForegrounds
    train, validation, test = (
        kind(data, part, check_counts=whole) for part in ("train", "validation", "test")
    )
    return Splits(format, train, validation, TestSet(test))


@functools.lru_cache(maxsize=2)
def _glyph_splits(part: str) -> Splits:
    train, validation, test = (
        GlyphCollages(split=split, part=part) for split in ("train", "validation", "test")
    )
    return Splits("glyphs", train, validation, TestSet(test))
