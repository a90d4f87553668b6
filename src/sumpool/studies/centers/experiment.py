"""Center regularizers with proxy losses: uniformity of the centers, and retrieval [skew].

    sumpool study centers              (glyphs: half an hour on two cores)
    sumpool study centers --data DIR   (CIFAR-100, 114 runs, or CUB: for a GPU)

ProxyNCA++ and ProxyAnchor with average pooling, without a regularizer and with R1, R2 on near and
on far pairs, UniformFace and hyperspherical energy, each with two values of its constant, if any,
and two weights; on glyphs only with weight 1 and, except for R2 on far pairs, the larger constant.
Measures retrieval of unseen classes and the uniformity of the proxies at the best step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sumpool.centers import center_uniformity
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.measuring import result
from sumpool.studies.shared.pooling_study import pooling_study
from sumpool.studies.shared.testbed import Testbed, train_on, with_loss
from sumpool.training import CenterConfig, TrainConfig

#: Values of the constant of each regularizer.
CONSTANTS: Mapping[str, tuple[float | None, ...]] = {
    "r1": (8.0, 32.0),
    "r2": (8.0, 32.0),
    "r2-far": (1.0, 8.0),  # on both sides of 2, above which two poles are best
    "uniformface": (None,),
    "mhe": (0.0, 2.0),
}
WEIGHTS = (0.1, 1.0)
#: Level without a regularizer.
NONE = {"regularizer": "none", "lam": None, "weight": 0.0}
LEVELS: tuple[dict[str, Any], ...] = (
    NONE,
    *(
        {"regularizer": name, "lam": lam, "weight": weight}
        for name, lams in CONSTANTS.items()
        for lam in lams
        for weight in WEIGHTS
    ),
)
QUICK_LEVELS = (NONE, LEVELS[1], LEVELS[-1])
#: Levels for glyphs, few enough for a CPU.
GLYPH_LEVELS = tuple(
    level
    for level in LEVELS
    if level["weight"] != WEIGHTS[0]
    and (level["regularizer"] in ("none", "r2-far") or level["lam"] in (None, 32.0, 2.0))
)


def levels_of(testbed: Testbed, quick: bool) -> tuple[dict[str, Any], ...]:
    """Return the levels to run on a testbed."""
    if quick:
        return QUICK_LEVELS
    return GLYPH_LEVELS if testbed.name == "glyphs" else LEVELS


def change(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Set loss, seed and regularizer."""
    config = replace(with_loss(config, cell["loss"], cell["seed"]), pool="gap")
    if cell["regularizer"] == NONE["regularizer"]:
        return config
    center = CenterConfig(weight=cell["weight"], lam=cell["lam"])
    return replace(config, center_reg=cell["regularizer"], center=center)


def train(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell."""
    trained = train_on(testbed, change(testbed.config, cell))
    assert trained.centers is not None
    measures = center_uniformity(trained.centers)._asdict()
    return result(trained, more=measures)


run = pooling_study("centers", levels_of, train, losses=("pnca", "panchor"))
