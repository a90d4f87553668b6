"""The packaged network as an embedder, without any training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from sumpool.models.backbones import build_backbone
from sumpool.models.config import EmbedderConfig
from sumpool.models.embedder import Embedder

#: Stands for the packaged network where the folder of a model is expected.
PRETRAINED = "pretrained"


def is_pretrained(folder: str | Path) -> bool:
    """Whether ``folder`` stands for the packaged network; a folder of that name has precedence."""
    return str(folder) == PRETRAINED and not Path(folder).exists()


def pretrained_embedder() -> Embedder:
    """Build an embedder from the packaged ImageNet network: the ℓ2-normalized mean of its last map.

    Its linear map is the identity.
    """
    config = EmbedderConfig(pooling="gap")
    backbone = build_backbone(config.backbone, weights=config.weights)
    config = replace(config, embedding_size=backbone.layout.channels)
    model = Embedder(config, backbone)
    assert isinstance(model.map, nn.Conv2d)
    nn.init.dirac_(model.map.weight)
    return model.eval()
