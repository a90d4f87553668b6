"""Evaluation: embeddings of images, exact nearest neighbours, retrieval metrics."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumpool.evaluation.embed import Embeddings, embed_images
from sumpool.evaluation.metrics import QueryScores, retrieval_metrics, score_queries
from sumpool.evaluation.neighbors import nearest_neighbors

if TYPE_CHECKING:
    from sumpool.evaluation.exhibits import collect_exhibits
    from sumpool.evaluation.judged import Judged, judge_images, write_judged, write_vectors

__all__ = [
    "Embeddings",
    "Judged",
    "QueryScores",
    "collect_exhibits",
    "embed_images",
    "judge_images",
    "nearest_neighbors",
    "retrieval_metrics",
    "score_queries",
    "write_judged",
    "write_vectors",
]

# What deals with image files brings torchvision along, which takes seconds to import and 200 MB:
# metrics of ready embeddings do without.
_LATER = {
    "Judged": "judged",
    "collect_exhibits": "exhibits",
    "judge_images": "judged",
    "write_judged": "judged",
    "write_vectors": "judged",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"sumpool.evaluation.{_LATER[name]}"), name)
    globals()[name] = value
    return value
