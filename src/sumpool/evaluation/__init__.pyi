from .embed import Embeddings as Embeddings
from .embed import embed_images as embed_images
from .evaluate import (
    Judged as Judged,
)
from .evaluate import (
    judge_images as judge_images,
)
from .evaluate import (
    write_judged as write_judged,
)
from .evaluate import (
    write_vectors as write_vectors,
)
from .gallery import collect_exhibits as collect_exhibits
from .metrics import (
    QueryScores as QueryScores,
)
from .metrics import (
    retrieval_metrics as retrieval_metrics,
)
from .metrics import (
    score_queries as score_queries,
)
from .neighbors import nearest_neighbors as nearest_neighbors
