"""Collages with the training settings of the paper [gsp, fig. 3b, suppl. 2.2].

    sumpool study collage-paper --data DIR   (CIFAR-100, 24 runs: for a GPU)
    sumpool study collage-paper              (glyphs: 24 runs)

The collage study trains for four epochs, with a frozen backbone in the first, and its zero-shot
loss has λ = 0.02. Here nothing is frozen, λ is 0.5, the learning rate of 1e-3 is halved after five
epochs without gain, and training ends after fifteen such epochs: long enough for the schedule to
take effect. The difference between the two studies shows how much of the paper's gains these
settings explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sumpool.studies.cells import CellResult
from sumpool.studies.collage.experiment import method_config
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import pooling_study
from sumpool.studies.shared.testbed import RATES, Testbed, train_on
from sumpool.training import StopConfig, TrainConfig

METHODS = ("gap", "gsp", "gsp+zs", "distilled")
#: λ of the zero-shot loss, epochs without gain before the rate is halved and before training ends,
#: and the maximum number of epochs.
ZERO_SHOT, PLATEAU, PATIENCE, EPOCHS = 0.5, 5, 15, 80


def as_published(testbed: Testbed, out_dir: Path, quick: bool) -> Testbed:
    """Return the testbed with the paper's schedule and, on CIFAR, its learning rate."""
    del out_dir
    config = testbed.config
    rate = testbed.rates[-1] if testbed.name == "glyphs" else RATES[0]
    optimizer = replace(
        config.optimizer, lr=rate, warmup_epochs=0.0, plateau_patience=PLATEAU, plateau_factor=0.5
    )
    stop = config.stop
    if not quick:
        assert stop.validate_every is not None
        stop = StopConfig(stop.validate_every, PATIENCE, EPOCHS * stop.validate_every)
    return replace(testbed, config=replace(config, optimizer=optimizer, stop=stop), rates=(rate,))


def paper_config(testbed: Testbed, cell: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a cell."""
    config = method_config(testbed, cell)
    if cell["method"] == "gsp+zs":
        config = replace(config, zero_shot=replace(config.zero_shot, weight=ZERO_SHOT))
    return config


def train(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell."""
    trained = train_on(testbed, paper_config(testbed, cell))
    return result(trained, pictures=cell["seed"] == 0)


def methods_of(testbed: Testbed, quick: bool) -> list[dict[str, Any]]:
    """Return the methods at the learning rate of the testbed."""
    del quick  # a few steps are fast with every method
    return [{"method": method, "lr": lr} for lr in testbed.rates for method in METHODS]


run = pooling_study("collage-paper", methods_of, train, on_cub=False, adapt=as_published)
