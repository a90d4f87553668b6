"""The model of an index that is given none: the packaged network, not trained further."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from sumpool.models import Embedder, EmbedderConfig
from sumpool.models.backbones import build_backbone


def frozen_embedder() -> Embedder:
    """The packaged ImageNet network with the pooling that retrieves best without training.

    That is the generalized mean with p = 3, of all poolings that have nothing to learn
    (docs/results/search-frozen-cpu). It is an embedder as any other; its linear map is the
    identity.
    """
    config = EmbedderConfig(pooling="gemean", pooling_options={"p": 3.0, "learn_p": False})
    backbone = build_backbone(config.backbone, weights=config.weights)
    config = replace(config, embedding_size=backbone.layout.channels)
    model = Embedder(config, backbone)
    assert isinstance(model.map, nn.Linear)
    nn.init.eye_(model.map.weight)
    return model.eval()
