"""Small embedders and images for the tests of the models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.models import Embedder, EmbedderConfig, build_embedder

GSP = {"prototypes": 4, "mu": 0.4, "eps": 3.0, "init": "random"}
#: A network of each layout, with the format, the channels and the prefix that come out of it.
SWIN = {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
LAYOUTS: dict[str, tuple[dict[str, Any], tuple[str, int, int]]] = {
    "maps": ({"backbone": "resnet20"}, ("NCHW", 64, 0)),
    "timm maps": ({"backbone": "test_resnet", "crop": 64}, ("NCHW", 96, 0)),
    "channels last": (
        {"backbone": "swin_tiny_patch4_window7_224", "crop": 32, "backbone_options": SWIN},
        ("NHWC", 24, 0),
    ),
    "tokens": ({"backbone": "test_vit", "crop": 64}, ("NLC", 64, 1)),
}


def config(**values: Any) -> EmbedderConfig:
    """ResNet20 to 8 dimensions by GSP, without weights, where nothing else is said."""
    if values.get("pooling", "gsp") == "gsp":
        values.setdefault("pooling_options", GSP)
    return EmbedderConfig(
        **{"backbone": "resnet20", "weights": "none", "embedding_size": 8, **values}
    )


def embedder(*, seed: int = 0, **values: Any) -> Embedder:
    return build_embedder(config(**values), seed=seed)


def images(model: Embedder, batch: int = 3) -> Tensor:
    """Inputs of the size that ``model`` takes."""
    size = model.preprocessing.crop
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def pictures(*sizes: tuple[int, int], seed: int = 0) -> list[Image.Image]:
    """PIL images of random pixels, sizes as (width, height)."""
    generator = np.random.default_rng(seed)
    return [
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]
