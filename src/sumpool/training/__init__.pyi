from .checkpoint import Checkpoints as Checkpoints
from .config import (
    CcpConfig as CcpConfig,
)
from .config import (
    CenterConfig as CenterConfig,
)
from .config import (
    ConfigError as ConfigError,
)
from .config import (
    GspConfig as GspConfig,
)
from .config import (
    HardwareConfig as HardwareConfig,
)
from .config import (
    OptimizerConfig as OptimizerConfig,
)
from .config import (
    StopConfig as StopConfig,
)
from .config import (
    TrainConfig as TrainConfig,
)
from .config import (
    ZeroShotConfig as ZeroShotConfig,
)
from .errors import RunError as RunError
from .loop import Trainer as Trainer
from .run import RunResult as RunResult
from .run import run_training as run_training
from .run_folder import RunFolder as RunFolder
from .settings import resolve as resolve
from .task import Outcome as Outcome
from .task import Task as Task
