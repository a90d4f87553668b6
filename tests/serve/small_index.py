"""A tiny collection whose class names and file names are scripts, and an index of it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sumpool.models import EmbedderConfig, build_embedder
from sumpool.search import Index

#: Classes; the last one tries to run a script.
CLASSES = ("circle", "square", '<img src=x onerror="window.harmed=1">')
#: What a browser would show if a script had run.
SCRIPT_NAME = '"><svg onload="window.harmed=1">.png'
PER_CLASS = 6
SIZE = (48, 40)


def drawing(kind: int, number: int) -> Image.Image:
    """A disk, a square or stripes in their own color, on noise."""
    random = np.random.default_rng(100 * kind + number)
    width, height = SIZE
    y, x = np.mgrid[:height, :width]
    cx, cy = random.uniform(14, 34), random.uniform(12, 28)
    shapes = (
        np.hypot(x - cx, y - cy) < 9,
        np.maximum(abs(x - cx), abs(y - cy)) < 8,
        (x + number) % 8 < 4,
    )
    color = np.eye(3)[kind] * 170 + 40
    pixels = random.normal(60, 15, (height, width, 3))
    pixels[shapes[kind]] = color + random.normal(0, 10, 3)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_photos(folder: Path) -> Path:
    """The collection, one folder per class; the last two images of the first class are the same."""
    for kind, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            file = SCRIPT_NAME if (kind, number) == (2, 0) else f"{number}.png"
            drawing(kind, min(number, PER_CLASS - 2) if kind == 0 else number).save(
                folder / name / file
            )
    return folder


def build_index(folder: Path, pooling: str = "gsp") -> Index:
    """An index of the collection in ``folder``, with a network that was not trained."""
    photos = write_photos(folder / "photos")
    options = {"prototypes": 4} if pooling == "gsp" else {}
    config = EmbedderConfig(
        "small_cnn", "none", 8, pooling, pooling_options=options, resize=32, crop=32
    )
    model = build_embedder(config).eval()
    if pooling == "gsp":
        view = model.preprocessing
        pixels = torch.stack([view.test_pixels(drawing(kind, 0)) for kind in range(3)])
        with torch.no_grad():
            model.pooling.initialize_prototypes(model.feature_map(view.normalize(pixels)))
    return Index.build(photos, folder / "small.index", model, progress=False)
