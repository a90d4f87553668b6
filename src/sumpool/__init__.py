"""sumpool: deep metric learning with generalized sum pooling."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_TRANSPORT = ("partial_transport", "sum_pool")


def __getattr__(name: str) -> Any:
    # Names are imported when first used: `sumpool --help` and the drawing of stored results do
    # without torch, which takes seconds to import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "sumpool.transport" if name in _TRANSPORT else "sumpool.pooling"
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
