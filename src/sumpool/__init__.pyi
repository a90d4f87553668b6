from .data import open_dataset as open_dataset
from .evaluation import (
    nearest_neighbors as nearest_neighbors,
)
from .evaluation import (
    retrieval_metrics as retrieval_metrics,
)
from .losses import ZeroShotLoss as ZeroShotLoss
from .losses import build_loss as build_loss
from .models import (
    Embedder as Embedder,
)
from .models import (
    EmbedderConfig as EmbedderConfig,
)
from .models import (
    build_embedder as build_embedder,
)
from .models import (
    load as load,
)
from .pooling import (
    GeneralizedSumPool1d as GeneralizedSumPool1d,
)
from .pooling import (
    GeneralizedSumPool2d as GeneralizedSumPool2d,
)
from .pooling import (
    GlobalAveragePool1d as GlobalAveragePool1d,
)
from .pooling import (
    GlobalAveragePool2d as GlobalAveragePool2d,
)
from .pooling import (
    Pooled as Pooled,
)
from .training import EmbeddingTransformer as EmbeddingTransformer
from .training import TrainConfig as TrainConfig
from .training import run_training as run_training
from .transport import partial_transport as partial_transport
from .transport import sum_pool as sum_pool

__version__: str
