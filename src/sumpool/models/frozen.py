"""Embedders whose backbone does not learn: its feature maps are computed once, the rest trains."""

from __future__ import annotations

import copy
import hashlib
import json

from torch import nn

from sumpool.models.embedder import Embedder
from sumpool.models.weights import tensors_digest


def without_backbone(model: Embedder) -> Embedder:
    """``model`` for the outputs of its backbone in place of images.

    Map and pooling are those of ``model`` itself: what one learns, the other has learned.

    Example:
        >>> import torch
        >>> from sumpool.models import EmbedderConfig, build_embedder
        >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16, "gap")).eval()
        >>> images = torch.rand(2, 3, 32, 32)
        >>> torch.equal(without_backbone(model)(model.backbone(images)), model(images))
        True
    """
    head = copy.copy(model)
    head._modules = {**model._modules, "backbone": nn.Identity()}
    return head


def backbone_digest(model: Embedder) -> str:
    """SHA-256 of what the backbone of ``model`` computes: its name, options and weights."""
    state = {name: it.detach().cpu() for name, it in model.backbone.state_dict().items()}
    named = json.dumps([model.config.backbone, model.config.backbone_options], sort_keys=True)
    return hashlib.sha256(f"{named} {tensors_digest(state)}".encode()).hexdigest()
