"""A cell of a benchmark: one run, identified by what it computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from sumpool.bench.methods import Method
from sumpool.protocols import Member
from sumpool.report.run.option_names import WHERE_IT_RUNS, first_name
from sumpool.training.config import TrainConfig, flat

#: Options that affect where and how a cell is computed, but not its identity. All options of the
#: group ``hardware`` but the precision are ignored, too.
IGNORED_OPTIONS = WHERE_IT_RUNS | {"data", "skip_broken"}
#: Options that are part of every identity, by their names in version 0.1. An option added later is
#: part of it only if it differs from its default, so that stored cells keep their identity.
FIRST_OPTIONS = frozenset(
    f"{group}.{name}" if group else name
    for group, names in {
        "": "augment backbone batch_size ccp center_reg crop embedding_size flip fold folds format "
        "freeze_batch_norm images_per_class loss loss_options normalize pool pool_options resize "
        "seed selection validation weights",
        "center": "lam subset weight",
        "chance": "alpha batch_weight beta patience pool problems proxies pull",
        "gsp": "average_steps eps mu prototypes",
        "hardware": "precision",
        "optimizer": "beta1 beta2 embedding_lr_multiplier lr plateau_factor plateau_patience "
        "proxy_lr_multiplier warmup_epochs weight_decay",
        "stop": "max_steps monitor patience validate_every",
        "zero_shot": "balance begin end halves lr_multiplier ridge scale standardize unit weight",
    }.items()
    for name in names.split()
)
#: Original defaults of later options whose default has changed since: identities leave out these
#: values, too.
FORMER_DEFAULTS: Mapping[str, Any] = {"ccp.solution": "best", "zero_shot.reduction": "sum"}
#: Options in which the runs of a group differ; a protocol combines these runs into one score.
FOLD_AND_SEED = frozenset({"fold", "seed"})

#: Variants of losses with cross-batch memory, by loss.
MEMORY_LOSSES: Mapping[str, str] = {"c1": "xbm", "c2": "xbm-c2"}
_BASE_LOSSES = {memory: loss for loss, memory in MEMORY_LOSSES.items()}


@dataclass(frozen=True)
class BenchCell:
    """One run of a grid.

    Attributes:
        protocol: Name of the protocol, a key of ``sumpool.protocols.PROTOCOLS``.
        data_set: Name of the data set, as shown in tables.
        method: Label of the method, see :func:`method_label`.
        member: Fold and seed.
        config: The resolved configuration.
    """

    protocol: str
    data_set: str
    method: str
    member: Member
    config: TrainConfig

    @cached_property
    def id(self) -> str:
        """Identity: 16 hexadecimal digits of a hash of all that determines the result."""
        return _digest(self.protocol, self.data_set, identity_options(flat(self.config)))

    @cached_property
    def group(self) -> str:
        """Identity of its group: the cells that differ only in fold and seed."""
        return group_of(self.protocol, self.data_set, flat(self.config))

    @property
    def backbone(self) -> str:
        """Name of the network."""
        return self.config.backbone

    @property
    def loss(self) -> str:
        """Loss as shown in tables: without cross-batch memory, which is part of the method."""
        return _BASE_LOSSES.get(self.config.loss, self.config.loss)

    @property
    def name(self) -> str:
        """Name used in messages."""
        return cell_name(self.key, self.member)

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Protocol, data set, network, loss and method."""
        return self.protocol, self.data_set, self.backbone, self.loss, self.method


def cell_name(key: Sequence[str], member: Member) -> str:
    """Return a cell's name for messages; ``key`` is protocol, data set, network, loss, method."""
    fold = [] if member.fold is None else [f"fold {member.fold}"]
    return " ".join([*key, *fold, f"seed {member.seed}"])


def identity_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that determine the result, by their original dotted names.

    Example:
        >>> identity_options({"data": "/data/cub", "seed": 1, "hardware.workers": 3})
        {'seed': 1}
    """
    return {
        first_name(name): _number(value)
        for name, value in options.items()
        if not is_ignored(name)
        and (first_name(name) in FIRST_OPTIONS or not _is_default(name, value))
    }


def _is_default(name: str, value: Any) -> bool:
    default = _defaults().get(name)
    return value in (default, FORMER_DEFAULTS.get(name, default))


@cache
def _defaults() -> Mapping[str, Any]:
    return flat(TrainConfig())


def is_ignored(name: str) -> bool:
    """Whether the option only affects where and how a cell is computed."""
    if name.startswith("hardware."):
        return name != "hardware.precision"
    return name in IGNORED_OPTIONS


def group_of(protocol: str, data_set: str, options: Mapping[str, Any]) -> str:
    """Return the identity of a group from the options of any member, without fold and seed."""
    shared = identity_options(options)
    return _digest(protocol, data_set, {it: shared[it] for it in shared if it not in FOLD_AND_SEED})


def method_label(config: TrainConfig) -> str:
    """Return the label of the method of a resolved configuration; see :class:`Method`.

    Example:
        >>> from sumpool.training import CcpConfig, ZeroShotConfig
        >>> method_label(TrainConfig(pool="gap", ccp=CcpConfig(enabled=True)))
        'ccp+gap'
        >>> method_label(TrainConfig(pool="gsp", loss="xbm", zero_shot=ZeroShotConfig(weight=0.1)))
        'xbm+gsp+zs'
    """
    zero_shot = bool(config.zero_shot.weight) or config.zero_shot.balance is not None
    memory = config.loss in _BASE_LOSSES
    return str(Method(config.pool, zero_shot, config.center_reg, memory, config.ccp.enabled))


def _digest(protocol: str, data_set: str, options: Mapping[str, Any]) -> str:
    content = {"protocol": protocol, "data_set": data_set, "config": options}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _number(value: Any) -> Any:
    # No option distinguishes 1 and 1.0.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _number(inner) for key, inner in value.items()}
    return value
