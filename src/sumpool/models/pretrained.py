"""The packaged network as it is, for vectors without any training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from sumpool.models.backbones import build_backbone
from sumpool.models.config import EmbedderConfig
from sumpool.models.embedder import Embedder

#: What stands for the packaged network where the folder of a model is expected.
PRETRAINED = "pretrained"


def is_pretrained(folder: str | Path) -> bool:
    """Whether ``folder`` stands for the packaged network; a folder of that name comes first."""
    return str(folder) == PRETRAINED and not Path(folder).exists()


def pretrained_embedder() -> Embedder:
    """The packaged ImageNet network without any training: the mean of its last map, ℓ2 normalized.

    It is an embedder as any other; its linear map is the identity.
    """
    config = EmbedderConfig(pooling="gap")
    backbone = build_backbone(config.backbone, weights=config.weights)
    config = replace(config, embedding_size=backbone.layout.channels)
    model = Embedder(config, backbone)
    assert isinstance(model.map, nn.Conv2d)
    nn.init.dirac_(model.map.weight)
    return model.eval()
