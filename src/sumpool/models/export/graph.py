"""The exported graph: an embedder from pixels to vectors, and its description."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from sumpool.data import ImageDataset
from sumpool.data.views.preprocessing import color_affine
from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError

#: Where colors are normalized: inside the exported graph, or before it as the file describes.
PREPROCESSING = ("inside", "described")
#: Largest accepted difference between an exported model and PyTorch.
TOLERANCE = 1e-4
#: Names of the input and the output, and the key of the description in the file.
INPUTS = {"inside": "pixels", "described": "images"}
OUTPUT, KEY = "embedding", "sumpool"


class ExportGraph(nn.Module):
    """An embedder in the form that is exported, in evaluation mode on the CPU.

    Args:
        model: The embedder; it is moved to the CPU.
        preprocessing: "inside" takes pixels (B, 3, crop, crop) uint8 and normalizes them;
            "described" takes normalized images, float32.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, model: Embedder, preprocessing: str = "inside") -> None:
        super().__init__()
        if preprocessing not in PREPROCESSING:
            raise ValueError(
                f"preprocessing must be one of {', '.join(PREPROCESSING)}, got {preprocessing!r}"
            )
        self.model = model.cpu().eval()
        self.preprocessing = preprocessing
        view = model.preprocessing
        scale, shift = color_affine(view.mean, view.std, torch.device("cpu"))
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (B, D) of pixels or of normalized images."""
        if self.preprocessing == "inside":
            # Like Preprocessing.normalize, whose cache must not hold the tensors of a tracer.
            images = torch.addcmul(self.shift, images.float(), self.scale)
        vectors = self.model(images)
        assert isinstance(vectors, Tensor)
        return vectors

    def inputs(self, pixels: Tensor) -> Tensor:
        """Return the graph's input for the pixels of center crops (B, 3, crop, crop)."""
        if self.preprocessing == "inside":
            return pixels
        return self.model.preprocessing.normalize(pixels)

    def example(self) -> Tensor:
        """Return two gray images to trace the graph with."""
        side = self.model.preprocessing.crop
        return self.inputs(torch.full((2, 3, side, side), 128, dtype=torch.uint8))

    def description(self) -> str:
        """Describe the model and its required preprocessing as JSON."""
        model, view = self.model, self.model.preprocessing
        described: dict[str, Any] = {
            "sumpool": version("sumpool"),
            "backbone": model.config.backbone,
            "pooling": model.config.pooling,
            "embedding_size": model.config.embedding_size,
            "normalize": model.config.normalize,
            "input": {
                "name": INPUTS[self.preprocessing],
                "layout": "NCHW",
                "channels": "RGB",
                "type": "uint8" if self.preprocessing == "inside" else "float32",
            },
            "orientation": "upright, as EXIF says",
            "resize_shorter_side": view.resize,
            "interpolation": "bilinear, antialiased",
            "center_crop": view.crop,
            "mean": list(view.mean),
            "std": list(view.std),
            "normalized_in_graph": self.preprocessing == "inside",
        }
        return json.dumps(described)


def sample_pixels(dataset: ImageDataset, model: Embedder, count: int) -> Tensor:
    """Return center crops of ``count`` evenly spaced images, uint8 (count, 3, crop, crop)."""
    indices = torch.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().long()
    view = model.preprocessing.test_pixels
    return torch.stack([view(dataset.load(int(index))) for index in indices])


@torch.no_grad()
def check_against(
    graph: ExportGraph, exported: Callable[[Tensor], Tensor], pixels: Tensor, what: str
) -> float:
    """Return the largest difference between ``graph`` and its exported form on real images.

    Batches of one image, of 32 and of the rest are compared, because the batch size is dynamic.

    Raises:
        ModelError: If it exceeds :data:`TOLERANCE`, or a value is not finite.
    """
    largest = 0.0
    for batch in (pixels[:1], *pixels[1:].split(32)):
        if len(batch):
            given = graph.inputs(batch)
            found = (exported(given) - graph(given)).abs().max()
            largest = max(largest, float(found.nan_to_num(float("inf"))))
    if largest > TOLERANCE:
        raise ModelError(
            f"{what} was not written: it differs from PyTorch by {largest:.1e} on "
            f"{len(pixels)} images, more than {TOLERANCE:.0e}"
        )
    return largest
