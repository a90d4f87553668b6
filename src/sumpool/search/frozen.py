"""The model of an index that is given none: the packaged network, not trained further."""

from __future__ import annotations

from sumpool.models import Embedder
from sumpool.models.pretrained import pretrained_embedder


def frozen_embedder() -> Embedder:
    """The packaged network with the pooling that retrieves best without training."""
    return pretrained_embedder()
