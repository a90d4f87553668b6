"""The default model of an index: the packaged network, not trained further."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from sumpool.models import Embedder, EmbedderConfig
from sumpool.models.backbones import build_backbone


def frozen_embedder() -> Embedder:
    """Build the packaged ImageNet network with the pooling that retrieves best without training.

    Among the poolings without parameters, that is the generalized mean with p = 3
    (docs/results/search-frozen-cpu). The linear map is the identity.
    """
    config = EmbedderConfig(pooling="gemean", pooling_options={"p": 3.0, "learn_p": False})
    backbone = build_backbone(config.backbone, weights=config.weights)
    config = replace(config, embedding_size=backbone.layout.channels)
    model = Embedder(config, backbone)
    assert isinstance(model.map, nn.Linear)
    nn.init.eye_(model.map.weight)
    return model.eval()
