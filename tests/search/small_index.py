"""Small folders of pictures, and models without training, for tests of the index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sumpool.models import Embedder, EmbedderConfig, build_embedder


def picture(seed: int, size: tuple[int, int] = (60, 50)) -> Image.Image:
    """Large random patches: pictures that differ, and stay what they are as JPEG."""
    patches = np.random.default_rng(seed).integers(0, 255, (5, 6, 3), np.uint8)
    return Image.fromarray(patches).resize(size, Image.Resampling.NEAREST)


def write_pictures(folder: Path, count: int, first: int = 0) -> list[Path]:
    """``count`` pictures in ``folder``, named by their number."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}.png" for number in range(first, first + count)]
    for number, path in enumerate(paths, first):
        picture(number).save(path)
    return paths


def small_model(pooling: str = "gsp", **options: object) -> Embedder:
    """A network of 48 × 48 pixels that embeds to 16 numbers."""
    if pooling == "gsp":
        options.setdefault("prototypes", 4)
        options.setdefault("init", "random")
    config = EmbedderConfig(
        "small_cnn", "none", 16, pooling, dict(options), freeze_batch_norm=False
    )
    return build_embedder(config, seed=3).eval()


def clusters(
    spread: float, classes: int = 12, each: int = 10
) -> tuple[NDArray[np.float32], list[str]]:
    """Vectors of length 1 around a center per class, and their classes."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.normal(size=(classes, 8)), each, axis=0)
    vectors = centers + spread * rng.normal(size=centers.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), [f"class {it // each}" for it in range(classes * each)]
