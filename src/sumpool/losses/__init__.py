"""Losses of pytorch-metric-learning with the papers' constants, and the zero-shot loss."""

from sumpool.losses.build import build_loss
from sumpool.losses.builders import WITHOUT_NORMALIZATION
from sumpool.losses.catalog import LOSSES
from sumpool.losses.constants import CONSTANTS, REDUCTIONS, Constant
from sumpool.losses.intra_batch import IntraBatchLoss
from sumpool.losses.margin import MarginLoss
from sumpool.losses.memory import MemoryLoss
from sumpool.losses.metric_loss import MetricLoss
from sumpool.losses.mixture import Mixture
from sumpool.losses.recipe import COLUMNS, DATASET_COLUMNS, DEFAULT_COLUMN, LossRecipe
from sumpool.losses.running_centers import RunningCenters
from sumpool.losses.zero_shot import ZeroShotLoss, class_halves, ridge_fit, zero_shot_loss

__all__ = [
    "COLUMNS",
    "CONSTANTS",
    "DATASET_COLUMNS",
    "DEFAULT_COLUMN",
    "LOSSES",
    "REDUCTIONS",
    "WITHOUT_NORMALIZATION",
    "Constant",
    "IntraBatchLoss",
    "LossRecipe",
    "MarginLoss",
    "MemoryLoss",
    "MetricLoss",
    "Mixture",
    "RunningCenters",
    "ZeroShotLoss",
    "build_loss",
    "class_halves",
    "ridge_fit",
    "zero_shot_loss",
]
