"""A cell of the benchmark: one training, with an identity that follows from what it computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sumpool.protocols import Member
from sumpool.training.config import TrainConfig, flat

#: Options that say where and how a cell is computed, not what: with others it is the same cell.
#: Those of the group ``hardware`` belong to them too, all but the precision.
NOT_IDENTITY = frozenset(
    {"data", "out", "cache", "cache_dir", "exhibits", "checkpoint_seconds", "skip_broken"}
)

#: Options that came after results had been stored, with the values at which they change nothing:
#: cells with these keep the identity that they had.
ADDED: Mapping[str, Any] = {
    "test": True,
    "optimizer.schedule": "constant",
    "optimizer.ema": None,
    "stop.keep": "best",
    "gsp.spread": None,
    "gsp.learn_eps": False,
    "gsp.init": "local",
    "gsp.lr_multiplier": 1.0,
    "zero_shot.reduction": "sum",
    "backbone_options": {},
    "crop_area": None,
    "map_init": "torch",
    "freeze_batch_norm_affine": False,
}

#: What tells the members of a group apart: the trainings that a protocol makes one number of.
OF_THE_MEMBER = frozenset({"fold", "seed"})

#: Losses with cross-batch memory, by the loss that batches are remembered for.
MEMORY_LOSSES: Mapping[str, str] = {"c1": "xbm", "c2": "xbm-c2"}
_REMEMBERED = {memory: loss for loss, memory in MEMORY_LOSSES.items()}


@dataclass(frozen=True)
class BenchCell:
    """One training of a grid.

    Attributes:
        protocol: Name of the protocol, a key of ``sumpool.protocols.PROTOCOLS``.
        data_set: Name of the data set, as tables have it.
        method: Label of the method, see :func:`method_label`.
        member: Fold and seed.
        config: The configuration, with everything filled in that a user left open.
    """

    protocol: str
    data_set: str
    method: str
    member: Member
    config: TrainConfig

    @cached_property
    def id(self) -> str:
        """Its identity: 16 hexadecimal digits of what decides its result."""
        return _digest(self.protocol, self.data_set, deciding(flat(self.config)))

    @cached_property
    def group(self) -> str:
        """What it shares with the cells that differ from it in fold and seed alone."""
        return group_of(self.protocol, self.data_set, flat(self.config))

    @property
    def backbone(self) -> str:
        """Name of the network."""
        return self.config.backbone

    @property
    def loss(self) -> str:
        """The loss as tables have it: of a cross-batch memory the one that it works for.

        That it goes through memory, the method says.
        """
        return _REMEMBERED.get(self.config.loss, self.config.loss)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        words = [self.protocol, self.data_set, self.backbone, self.loss, self.method]
        if self.member.fold is not None:
            words.append(f"fold {self.member.fold}")
        return " ".join([*words, f"seed {self.member.seed}"])


def deciding(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``options``, by dotted name, that decide what is computed.

    Example:
        >>> deciding({"data": "/data/cub", "seed": 1, "hardware.workers": 3})
        {'seed': 1}
    """
    return {name: _number(value) for name, value in options.items() if decides(name)}


def decides(name: str) -> bool:
    """Whether the option called ``name`` decides what is computed."""
    if name.startswith("hardware."):
        return name == "hardware.precision"
    return name not in NOT_IDENTITY


def group_of(protocol: str, data_set: str, options: Mapping[str, Any]) -> str:
    """Identity of a group: 16 hexadecimal digits, as of a cell, but for fold and seed.

    Args:
        protocol: Name of the protocol.
        data_set: Name of the data set.
        options: Every option of one of its members by dotted name.
    """
    shared = {name: value for name, value in deciding(options).items() if name not in OF_THE_MEMBER}
    return _digest(protocol, data_set, shared)


def method_label(config: TrainConfig) -> str:
    """What tables call the method of a resolved configuration.

    It is the name of the pooling; ``+zs`` follows where the zero-shot loss has weight, then
    ``+reg:NAME`` of a regulariser of centres. Chance-constrained proxies (``ccp+``) and cross-batch
    memory (``xbm+``) stand before it.

    Example:
        >>> method_label(TrainConfig(pool="gap")), method_label(TrainConfig(pool="gap", ccp=True))
        ('gap', 'ccp+gap')
        >>> from sumpool.training import ZeroShotConfig
        >>> method_label(TrainConfig(pool="gsp", loss="xbm", zero_shot=ZeroShotConfig(weight=0.1)))
        'xbm+gsp+zs'
    """
    label = config.pool
    if config.zero_shot.weight or config.zero_shot.balance is not None:
        label += "+zs"
    if config.center_reg is not None:
        label += f"+reg:{config.center_reg}"
    if config.loss in _REMEMBERED:
        label = f"xbm+{label}"
    return f"ccp+{label}" if config.ccp else label


def _digest(protocol: str, data_set: str, options: Mapping[str, Any]) -> str:
    told = {
        name: value for name, value in options.items() if name not in ADDED or value != ADDED[name]
    }
    decides = {"protocol": protocol, "data_set": data_set, "config": told}
    text = json.dumps(decides, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _number(value: Any) -> Any:
    # 1 and 1.0 are one number to every option.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _number(inner) for key, inner in value.items()}
    return value
