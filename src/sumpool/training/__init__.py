"""Training: one loop that can be killed, continued and read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumpool.training.config import (
    CenterConfig,
    ChanceConfig,
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ZeroShotConfig,
)
from sumpool.training.errors import RunError

if TYPE_CHECKING:
    from sumpool.training.checkpoint import Checkpoints
    from sumpool.training.loop import Trainer
    from sumpool.training.run import RunResult, run_training
    from sumpool.training.run_folder import RunFolder
    from sumpool.training.settings import resolve
    from sumpool.training.task import Outcome, Task

__all__ = [
    "CenterConfig",
    "ChanceConfig",
    "Checkpoints",
    "ConfigError",
    "GspConfig",
    "HardwareConfig",
    "OptimizerConfig",
    "Outcome",
    "RunError",
    "RunFolder",
    "RunResult",
    "StopConfig",
    "Task",
    "TrainConfig",
    "Trainer",
    "ZeroShotConfig",
    "resolve",
    "run_training",
]

# Where the names are that need torch: `sumpool train --help` does without it.
_HOMES = {
    "Checkpoints": "checkpoint",
    "Outcome": "task",
    "RunFolder": "run_folder",
    "RunResult": "run",
    "Task": "task",
    "Trainer": "loop",
    "resolve": "settings",
    "run_training": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
