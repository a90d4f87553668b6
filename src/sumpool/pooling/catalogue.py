"""The poolings by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sumpool.pooling.average import GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling.base import GlobalPool
from sumpool.pooling.generalized_sum import GeneralizedSumPool1d, GeneralizedSumPool2d

#: Name → (class for maps, class for token sequences).
POOLINGS: Mapping[str, tuple[type[GlobalPool], type[GlobalPool]]] = {
    "gap": (GlobalAveragePool2d, GlobalAveragePool1d),
    "gsp": (GeneralizedSumPool2d, GeneralizedSumPool1d),
}


def pooling_options(name: str, *, sequence: bool = False) -> tuple[str, ...]:
    """The options that :func:`build_pooling` accepts for this pooling.

    Example:
        >>> pooling_options("gap")
        ('flatten', 'input_fmt', 'num_prefix_tokens')
    """
    names = inspect.signature(_pooling_class(name, sequence)).parameters
    return tuple(option for option in names if option != "channels")


def build_pooling(
    name: str, channels: int, *, sequence: bool = False, **options: Any
) -> GlobalPool:
    """Build the pooling called ``name``.

    Args:
        name: One of :data:`POOLINGS`.
        channels: Channels of the features; poolings that do not depend on it do not look at it.
        sequence: Whether the features are token sequences rather than maps.
        **options: Arguments of the pooling's class.

    Raises:
        ValueError: If the name is unknown, or an option is; the message lists what is accepted.

    Example:
        >>> build_pooling("gsp", 8, prototypes=4, mu=0.5).prototypes.shape
        torch.Size([4, 8])
        >>> build_pooling("gap", 8, sequence=True, num_prefix_tokens=1).input_fmt
        'NLC'
    """
    cls = _pooling_class(name, sequence)
    accepted = pooling_options(name, sequence=sequence)
    unknown = [option for option in options if option not in accepted]
    if unknown:
        raise ValueError(
            f"options of the pooling {name!r} must be among {sorted(accepted)}, got {unknown}"
        )
    if "channels" in inspect.signature(cls).parameters:
        options["channels"] = channels
    return cls(**options)


def _pooling_class(name: str, sequence: bool) -> type[GlobalPool]:
    if name not in POOLINGS:
        raise ValueError(f"pooling must be one of {sorted(POOLINGS)}, got {name!r}")
    return POOLINGS[name][sequence]
