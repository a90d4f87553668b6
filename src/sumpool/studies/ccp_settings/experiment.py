"""Ablation of the settings of chance-constrained proxies [thesis, ch. 3].

    sumpool study ccp-settings              (glyphs: 90 runs)
    sumpool study ccp-settings --data DIR   (CIFAR-100 or CUB: for a GPU)

Compares the in-batch loss, proxies with the settings of the thesis, and these with some settings
changed, for C2 and multi-similarity. With the settings of the thesis, proxies lose 0.9 points of
MAP@R on CUB and hardly move at its learning rate (docs/results/ccp-cub-h200). Where the thesis can
be read in two ways, a level covers the other reading: its algorithm continues from the last weights
of a problem, its protocol normalizes embeddings to unit length. On CUB, a run with proxies chooses
its model among four times as many validations; there, a level gives the base loss as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sumpool.studies.shared.ccp import prepare, train_level, with_method
from sumpool.studies.shared.pooling_study import Level, pooling_study
from sumpool.studies.shared.testbed import Testbed
from sumpool.training import TrainConfig, resolve

#: Variant that the others are compared with.
BASE = "base"
#: Omitted where the base loss is validated as often as proxies are.
MANY_VALIDATIONS = "base, many validations"


def thesis(config: TrainConfig, **options: Any) -> TrainConfig:
    """Use alternating problems with the settings of the thesis, except for ``options``.

    By default, each problem returns to its best validation, the first reading of the thesis.
    """
    return with_method(config, "alternating", **{"solution": "best", **options})


def unit_vectors(config: TrainConfig, **options: Any) -> TrainConfig:
    """Use :func:`thesis` with embeddings of unit length."""
    return replace(thesis(config, **options), normalize="l2")


def random_proxies(config: TrainConfig) -> TrainConfig:
    """Use a pool as large as the number of proxies, so that proxies are drawn at random."""
    return thesis(config, candidates=resolve(thesis(config), config.format).ccp.proxies)


def faster_proxies(config: TrainConfig, factor: float) -> TrainConfig:
    """Set the learning rate of proxies to a multiple of that of the network."""
    config = thesis(config)
    return replace(config, optimizer=replace(config.optimizer, proxy_lr_multiplier=factor))


def many_validations(config: TrainConfig) -> TrainConfig:
    """Use the base loss, validated and stopped like a run with proxies."""
    return replace(with_method(config, "base"), stop=resolve(thesis(config), config.format).stop)


#: Variants by name, in the order of tables.
VARIANTS: Mapping[str, Callable[[TrainConfig], TrainConfig]] = {
    BASE: lambda config: with_method(config, "base"),
    MANY_VALIDATIONS: many_validations,
    "thesis": thesis,
    "one problem": lambda config: with_method(config, "one problem", solution="best"),
    "random proxies": random_proxies,
    "no pull": lambda config: thesis(config, pull=0.0),
    "patience 10": lambda config: thesis(config, patience=10),
    "batch weight 0.1": lambda config: thesis(config, batch_weight=0.1),
    "proxies x10": lambda config: faster_proxies(config, 10.0),
    "proxies x100": lambda config: faster_proxies(config, 100.0),
    "last weights": lambda config: thesis(config, solution="last"),
    "last weights, patience 10": lambda config: thesis(config, solution="last", patience=10),
    "unit vectors": unit_vectors,
    "unit vectors, patience 10": lambda config: unit_vectors(config, patience=10),
    "unit vectors, last weights": lambda config: unit_vectors(config, solution="last"),
    "unit vectors, last weights, batch weight 0.1": lambda config: unit_vectors(
        config, solution="last", batch_weight=0.1
    ),
}
#: Labels of variants in tables and figures, where they differ from the name.
LABELS: Mapping[str, str] = {
    BASE: "base loss",
    MANY_VALIDATIONS: "base loss, many validations",
    "thesis": "proxies, back to the best weights",
    "no pull": "no pull, λ = 0",
    "batch weight 0.1": "batch pairs too, weight 0.1",
    "proxies x10": "rate of proxies × 10",
    "proxies x100": "rate of proxies × 100",
    "unit vectors, last weights, batch weight 0.1": "unit vectors, last weights, batch pairs",
}
LEVELS = tuple({"variant": name} for name in VARIANTS)
QUICK_LEVELS = tuple({"variant": name} for name in ("base", "thesis", "proxies x100"))


def levels_of(testbed: Testbed, quick: bool) -> tuple[dict[str, str], ...]:
    """Return the variants to run on a testbed."""
    if quick:
        return QUICK_LEVELS
    config = with_method(testbed.config, "base")
    own, many = (resolve(it, config.format).stop for it in (config, many_validations(config)))
    return tuple(it for it in LEVELS if own != many or it["variant"] != MANY_VALIDATIONS)


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Apply the variant."""
    return VARIANTS[cell["variant"]](config)


run = pooling_study(
    "ccp-settings", levels_of, partial(train_level, change), losses=("c2", "ms"), adapt=prepare
)
