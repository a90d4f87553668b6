"""Small data sets in memory for the tests of views, caches and feeds."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sumpool.data.base import BrokenImageError, ImageDataset
from sumpool.data.views.preprocessing import Preprocessing

#: Views of pictures with a shorter side of 48, small enough to be quick.
VIEWS = Preprocessing(resize=48, crop=40)


def global_states() -> tuple[object, ...]:
    """The states of the generators that a whole process shares."""
    numpy = np.random.get_state()[1].tolist()  # noqa: NPY002 - its state is the point
    return torch.get_rng_state().tolist(), numpy, random.getstate()


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """A picture with coarse and fine detail."""
    generator = np.random.default_rng([seed, height, width])
    coarse = generator.integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = generator.integers(-40, 41, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8))


class Pictures(ImageDataset):
    """Pictures of different sizes; those in ``broken`` cannot be read; ``loads`` counts."""

    def __init__(self, labels: Sequence[int], broken: Iterable[int] = (), seed: int = 0) -> None:
        super().__init__(labels, [f"class {it}" for it in range(max(labels) + 1)])
        generator = np.random.default_rng(seed)
        sizes = generator.integers(44, 90, (len(labels), 2))
        self.images = [picture(*size, seed) for size in sizes.tolist()]
        self.broken = set(broken)
        self.loads = 0
        self._counting = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "_counting"}

    def load(self, index: int) -> Image.Image:
        if index in self.broken:
            raise BrokenImageError.of([(self.item_name(index), "it is torn")])
        if hasattr(self, "_counting"):
            with self._counting:
                self.loads += 1
        return self.images[index]

    def item_name(self, index: int) -> str:
        return f"album/picture {index}"


class Files(Pictures):
    """Pictures stored as files."""

    def __init__(self, folder: Path, labels: Sequence[int], seed: int = 0) -> None:
        super().__init__(labels, seed=seed)
        self.folder = folder
        for index, image in enumerate(self.images):
            image.save(self.item_name(index))

    def load(self, index: int) -> Image.Image:
        super().load(index)
        with Image.open(self.item_name(index)) as image:
            return image.convert("RGB")

    def item_name(self, index: int) -> str:
        return str(self.folder / f"{index}.png")
