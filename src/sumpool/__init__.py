"""sumpool: deep metric learning with generalized sum pooling."""

from sumpool.pooling import (
    GeneralizedSumPool1d,
    GeneralizedSumPool2d,
    GlobalAveragePool1d,
    GlobalAveragePool2d,
    Pooled,
)
from sumpool.transport import partial_transport, sum_pool

__all__ = [
    "GeneralizedSumPool1d",
    "GeneralizedSumPool2d",
    "GlobalAveragePool1d",
    "GlobalAveragePool2d",
    "Pooled",
    "partial_transport",
    "sum_pool",
]
