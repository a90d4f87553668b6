"""Colored shapes on a plain ground, a feed of them, and models that look at colors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from sumpool.data import Batch, ImageDataset, Preprocessing
from sumpool.data.feeds.loading_feed import LoadingFeed
from sumpool.pooling import GeneralizedSumPool2d, GlobalAveragePool2d, Pooled

COLORS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 70, 220),
    "gold": (230, 190, 30),
}
GROUND = (90, 90, 90)
SIDE, GRID = 64, 8


class Shapes(ImageDataset):
    """One colored disc per image, its class its color, somewhere on gray."""

    def __init__(self, labels: Sequence[int], seed: int = 0) -> None:
        super().__init__(torch.tensor(labels), tuple(COLORS))
        draws = np.random.default_rng(seed)
        self.centers = draws.integers(12, SIDE - 12, (len(labels), 2)).tolist()

    def load(self, index: int) -> Image.Image:
        image = Image.new("RGB", (SIDE, SIDE), GROUND)
        column, row = self.centers[index]
        color = list(COLORS.values())[int(self.labels[index])]
        ImageDraw.Draw(image).ellipse((column - 8, row - 8, column + 8, row + 8), fill=color)
        return image

    def item_name(self, index: int) -> str:
        return f"shape-{index}.png"


class ShapeFeed(LoadingFeed):
    """A feed in batches of five that counts the images it gave."""

    def __init__(self, dataset: ImageDataset) -> None:
        preprocessing = Preprocessing(resize=SIDE, crop=SIDE, area=(16.0, 64.0**2))
        super().__init__(dataset, preprocessing, torch.device("cpu"), seed=0, workers=0)
        self.seen = 0

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 5
    ) -> Iterator[Batch]:
        for batch in super().test_batches(indices, batch_size):
            self.seen += len(batch.images)
            yield batch


class ColorModel(nn.Module):
    """Mean colors of an 8×8 grid as features, and a pooling of them."""

    def __init__(self, pooling: str = "gsp") -> None:
        super().__init__()
        self.pooling: nn.Module = GlobalAveragePool2d()
        if pooling != "gap":
            layer = GeneralizedSumPool2d(3, prototypes=len(COLORS), mu=0.1, eps=20, init="random")
            layer.prototypes.data.copy_(color_features())
            self.pooling = layer

    def feature_map(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, GRID)

    def forward(self, images: Tensor, details: bool = False) -> Any:
        out = self.pooling.pool(self.feature_map(images))
        embedding = nn.functional.normalize(out.embedding, dim=1)
        return Pooled(embedding, out.weights, out.attributes) if details else embedding


class TokenModel(ColorModel):
    """The same with its positions as a sequence, of which the last ``dropped`` are not there."""

    def __init__(self, dropped: int = 0) -> None:
        super().__init__()
        self.dropped = dropped
        inner = self.pooling

        class Sequences(nn.Module):
            def plan(self, x: Tensor) -> Tensor:
                plan = inner.plan(x).flatten(2)
                return plan[..., : plan.shape[-1] - dropped]

        self.pooling = Sequences()
        self.inner = inner

    def forward(self, images: Tensor, details: bool = False) -> Any:
        out = self.inner.pool(self.feature_map(images))
        weights = out.weights.flatten(1)
        return Pooled(out.embedding, weights[:, : weights.shape[1] - self.dropped], out.attributes)


def color_features() -> Tensor:
    """The normalized color of each class, (4, 3)."""
    pixels = torch.tensor(list(COLORS.values()), dtype=torch.float32)[:, :, None, None]
    return Preprocessing().normalize(pixels)[:, :, 0, 0]
