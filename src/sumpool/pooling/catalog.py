"""Pooling layers by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sumpool.pooling.average import GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling.average_maximum import AverageMaxPool1d, AverageMaxPool2d
from sumpool.pooling.base import GlobalPool
from sumpool.pooling.generalized_mean import GeneralizedMeanPool1d, GeneralizedMeanPool2d
from sumpool.pooling.generalized_mean_sum import GeneralizedMeanSumPool1d, GeneralizedMeanSumPool2d
from sumpool.pooling.generalized_sum import GeneralizedSumPool1d, GeneralizedSumPool2d
from sumpool.pooling.keyed_sum import KeyedSumPool1d, KeyedSumPool2d
from sumpool.pooling.maximum import GlobalMaxPool1d, GlobalMaxPool2d
from sumpool.pooling.maximum_sum import MaximumSumPool1d, MaximumSumPool2d
from sumpool.pooling.multi_head_sum import MultiHeadSumPool1d, MultiHeadSumPool2d
from sumpool.pooling.rivals.attention import AttentionPool1d, AttentionPool2d
from sumpool.pooling.rivals.boq import BoqPool1d, BoqPool2d
from sumpool.pooling.rivals.cbam import CbamPool2d
from sumpool.pooling.rivals.compact_bilinear import CompactBilinearPool1d, CompactBilinearPool2d
from sumpool.pooling.rivals.crow import CrowPool1d, CrowPool2d
from sumpool.pooling.rivals.delf import DelfPool1d, DelfPool2d
from sumpool.pooling.rivals.efficient_probing import EfficientProbingPool1d, EfficientProbingPool2d
from sumpool.pooling.rivals.generalized_max import GeneralizedMaxPool1d, GeneralizedMaxPool2d
from sumpool.pooling.rivals.gsop import GsopPool2d
from sumpool.pooling.rivals.netvlad import NetVladPool1d, NetVladPool2d
from sumpool.pooling.rivals.optimal_transport import OptimalTransportPool1d, OptimalTransportPool2d
from sumpool.pooling.rivals.salad import SaladPool1d, SaladPool2d
from sumpool.pooling.rivals.simpool import SimPool1d, SimPool2d
from sumpool.pooling.rivals.smk import SmkPool2d
from sumpool.pooling.rivals.solar import SolarPool1d, SolarPool2d
from sumpool.pooling.rivals.weldon import WeldonPool1d, WeldonPool2d
from sumpool.pooling.sum_parts import SumPartsPool1d, SumPartsPool2d

#: Name → (class for maps, class for token sequences or None if it needs neighboring positions).
POOLINGS: Mapping[str, tuple[type[GlobalPool], type[GlobalPool] | None]] = {
    "gap": (GlobalAveragePool2d, GlobalAveragePool1d),
    "gmp": (GlobalMaxPool2d, GlobalMaxPool1d),
    "gap+gmp": (AverageMaxPool2d, AverageMaxPool1d),
    "cbam": (CbamPool2d, None),
    "crow": (CrowPool2d, CrowPool1d),
    "delf": (DelfPool2d, DelfPool1d),
    "gemax": (GeneralizedMaxPool2d, GeneralizedMaxPool1d),
    "gemean": (GeneralizedMeanPool2d, GeneralizedMeanPool1d),
    "gsop": (GsopPool2d, None),
    "otp": (OptimalTransportPool2d, OptimalTransportPool1d),
    "solar": (SolarPool2d, SolarPool1d),
    "t-smk": (SmkPool2d, None),
    "netvlad": (NetVladPool2d, NetVladPool1d),
    "weldon": (WeldonPool2d, WeldonPool1d),
    "compact-bilinear": (CompactBilinearPool2d, CompactBilinearPool1d),
    "simpool": (SimPool2d, SimPool1d),
    "attention": (AttentionPool2d, AttentionPool1d),
    "salad": (SaladPool2d, SaladPool1d),
    "boq": (BoqPool2d, BoqPool1d),
    "efficient-probing": (EfficientProbingPool2d, EfficientProbingPool1d),
    "gsp": (GeneralizedSumPool2d, GeneralizedSumPool1d),
    "gmp+gsp": (MaximumSumPool2d, MaximumSumPool1d),
    "gemean+gsp": (GeneralizedMeanSumPool2d, GeneralizedMeanSumPool1d),
    "gsp-heads": (MultiHeadSumPool2d, MultiHeadSumPool1d),
    "gsp-keys": (KeyedSumPool2d, KeyedSumPool1d),
    "gsp-parts": (SumPartsPool2d, SumPartsPool1d),
}

#: Options of rival methods in the code of the authors of [gsp], where they differ from the defaults
#: here, which follow the papers that introduced the methods.
AUTHORS_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "cbam": {"kernel_size": 3},
    "otp": {"eps": 2.0, "iterations": 10},
    "solar": {"reduction": 1},
}


def pooling_options(name: str, *, sequence: bool = False) -> tuple[str, ...]:
    """Return the names of the options that :func:`build_pooling` accepts for a pooling.

    Example:
        >>> pooling_options("gap")
        ('flatten', 'input_fmt', 'num_prefix_tokens')
    """
    names = inspect.signature(pooling_class(name, sequence=sequence)).parameters
    return tuple(option for option in names if option not in ("channels", "embedding_size"))


def build_pooling(
    name: str,
    channels: int,
    *,
    embedding_size: int | None = None,
    sequence: bool = False,
    **options: Any,
) -> GlobalPool:
    """Build the pooling layer ``name``.

    Args:
        name: One of :data:`POOLINGS`.
        channels: Channels of the features; ignored by poolings that do not depend on it.
        embedding_size: Length of the embedding, only for poolings whose ``linear_map`` is
            "inside"; None uses their default.
        sequence: Whether the features are token sequences rather than maps.
        **options: Arguments of the pooling's class.

    Raises:
        ValueError: If the name or an option is unknown (the message lists the choices), or if
            ``embedding_size`` does not apply.

    Example:
        >>> build_pooling("gsp", 8, prototypes=4, mu=0.5).prototypes.shape
        torch.Size([4, 8])
        >>> build_pooling("gap", 8, sequence=True, num_prefix_tokens=1).input_fmt
        'NLC'
    """
    cls = pooling_class(name, sequence=sequence)
    accepted = pooling_options(name, sequence=sequence)
    unknown = [option for option in options if option not in accepted]
    if unknown:
        raise ValueError(
            f"options of the pooling {name!r} must be among {sorted(accepted)}, got {unknown}"
        )
    if "channels" in inspect.signature(cls).parameters:
        options["channels"] = channels
    if embedding_size is not None:
        if cls.linear_map != "inside":
            raise ValueError(
                f"embedding_size must be None for the pooling {name!r}, which has no linear map"
            )
        options["embedding_size"] = embedding_size
    return cls(**options)


def pooling_class(name: str, *, sequence: bool = False) -> type[GlobalPool]:
    """Return the class of the pooling ``name``, for maps or for token sequences.

    Raises:
        ValueError: If there is no such pooling; the message lists the choices.

    Example:
        >>> pooling_class("gap").linear_map
        'before'
    """
    if name not in POOLINGS:
        raise ValueError(f"pooling must be one of {sorted(POOLINGS)}, got {name!r}")
    cls = POOLINGS[name][sequence]
    if cls is None:
        able = sorted(key for key, (_, on_tokens) in POOLINGS.items() if on_tokens is not None)
        raise ValueError(
            f"pooling {name!r} needs maps; on token sequences it must be one of {able}"
        )
    return cls
