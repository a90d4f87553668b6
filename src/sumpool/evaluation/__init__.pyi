from .embed import Embeddings as Embeddings
from .embed import embed_images as embed_images
from .evaluate import (
    RetrievalEvaluation as RetrievalEvaluation,
)
from .evaluate import (
    evaluate_retrieval as evaluate_retrieval,
)
from .evaluate import (
    write_evaluation as write_evaluation,
)
from .evaluate import (
    write_vectors as write_vectors,
)
from .gallery import collect_gallery as collect_gallery
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
