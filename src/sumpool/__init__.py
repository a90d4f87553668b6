"""sumpool: deep metric learning with generalized sum pooling."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumpool.data import open_dataset
    from sumpool.evaluation import nearest_neighbors, retrieval_metrics
    from sumpool.losses import ZeroShotLoss, build_loss
    from sumpool.models import Embedder, EmbedderConfig, build_embedder
    from sumpool.models import load_embedder as load
    from sumpool.pooling import (
        GeneralizedSumPool1d,
        GeneralizedSumPool2d,
        GlobalAveragePool1d,
        GlobalAveragePool2d,
        Pooled,
    )
    from sumpool.training import TrainConfig, run_training
    from sumpool.transport import partial_transport, sum_pool

__all__ = [
    "Embedder",
    "EmbedderConfig",
    "GeneralizedSumPool1d",
    "GeneralizedSumPool2d",
    "GlobalAveragePool1d",
    "GlobalAveragePool2d",
    "Pooled",
    "TrainConfig",
    "ZeroShotLoss",
    "build_embedder",
    "build_loss",
    "load",
    "nearest_neighbors",
    "open_dataset",
    "partial_transport",
    "retrieval_metrics",
    "run_training",
    "sum_pool",
]

# Where each name is, and what it is called there.
_HOMES = {
    "Embedder": ("models", "Embedder"),
    "EmbedderConfig": ("models", "EmbedderConfig"),
    "GeneralizedSumPool1d": ("pooling", "GeneralizedSumPool1d"),
    "GeneralizedSumPool2d": ("pooling", "GeneralizedSumPool2d"),
    "GlobalAveragePool1d": ("pooling", "GlobalAveragePool1d"),
    "GlobalAveragePool2d": ("pooling", "GlobalAveragePool2d"),
    "Pooled": ("pooling", "Pooled"),
    "TrainConfig": ("training", "TrainConfig"),
    "ZeroShotLoss": ("losses", "ZeroShotLoss"),
    "build_embedder": ("models", "build_embedder"),
    "build_loss": ("losses", "build_loss"),
    "load": ("models", "load_embedder"),
    "nearest_neighbors": ("evaluation", "nearest_neighbors"),
    "open_dataset": ("data", "open_dataset"),
    "partial_transport": ("transport", "partial_transport"),
    "retrieval_metrics": ("evaluation", "retrieval_metrics"),
    "run_training": ("training", "run_training"),
    "sum_pool": ("transport", "sum_pool"),
}


def __getattr__(name: str) -> Any:
    # Names are imported when first used: `sumpool --help` and the drawing of stored results do
    # without torch, which takes seconds to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, inside = _HOMES[name]
    value = getattr(import_module(f"sumpool.{home}"), inside)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
