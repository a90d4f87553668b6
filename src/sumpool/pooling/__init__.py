"""Global poolings: from a map or a sequence of features to one vector."""

from sumpool.pooling.average import GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling.base import GlobalPool, MapPool, Pooled
from sumpool.pooling.catalogue import POOLINGS, build_pooling, pooling_class, pooling_options
from sumpool.pooling.generalized_sum import GeneralizedSumPool1d, GeneralizedSumPool2d

__all__ = [
    "POOLINGS",
    "GeneralizedSumPool1d",
    "GeneralizedSumPool2d",
    "GlobalAveragePool1d",
    "GlobalAveragePool2d",
    "GlobalPool",
    "MapPool",
    "Pooled",
    "build_pooling",
    "pooling_class",
    "pooling_options",
]
