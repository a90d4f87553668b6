"""Embeddings of image files and images in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from tqdm import tqdm

from sumpool.data.sets.decoding import read_image
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.errors import ModelError
from sumpool.system.modes import evaluating
from sumpool.transport.validation import check_at_least_one

#: Accepted types of an image.
ImageLike = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]
_IMAGES = (str, os.PathLike, Image.Image, np.ndarray)
_KINDS = "paths or PIL images, or uint8 arrays (H, W) or (H, W, 3), at least one"


@torch.no_grad()
def encode_images(
    model: nn.Module,
    preprocessing: Preprocessing,
    images: ImageLike | Iterable[ImageLike],
    *,
    batch_size: int,
    progress: bool,
) -> Tensor:
    """Return embeddings (N, D) of image files or images in memory; see :meth:`Embedder.encode`."""
    sources = image_list(images)
    check_at_least_one(batch_size=batch_size)
    view, parameter = preprocessing.test_view(), next(model.parameters())
    embeddings = []
    with (
        evaluating(model),
        tqdm(total=len(sources), desc="encoding", unit="image", disable=not progress) as bar,
    ):
        for start in range(0, len(sources), batch_size):
            batch = [view(as_image(it)) for it in sources[start : start + batch_size]]
            normalized = preprocessing.normalize(torch.stack(batch).to(parameter.device))
            embeddings.append(model(normalized.to(parameter.dtype)))
            bar.update(len(batch))
    vectors = torch.cat(embeddings)
    bad = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        given = sources[bad[0]]
        is_path = isinstance(given, str | os.PathLike)
        name = os.fspath(given) if is_path else f"number {bad[0]}"
        raise ModelError(
            f"the embedding of image {name} is not finite: the weights of the model are "
            "damaged, or its training diverged"
        )
    return vectors


def image_list(images: Any) -> list[Any]:
    """Return one or many images as a list; a ValueError names the accepted types."""
    one = isinstance(images, _IMAGES)
    if isinstance(images, np.ndarray):
        # One image or a stack of them; arrays of strings or objects are lists of paths or images.
        pixels = images.dtype.kind not in "OSU"
        one = pixels and (images.ndim == 2 or (images.ndim == 3 and images.shape[-1] <= 4))
    sources = [images] if one else list(images)
    others = [type(it).__name__ for it in sources if not isinstance(it, _IMAGES)]
    if others or not sources:
        got = f"{others[0]} among them" if others else "none"
        raise ValueError(f"images must be {_KINDS}, got {got}")
    return sources


def as_image(source: Any) -> Image.Image:
    """Read an item of :func:`image_list` as an upright RGB image."""
    if isinstance(source, np.ndarray):
        gray = source.ndim == 2
        if source.dtype != np.uint8 or not (gray or (source.ndim == 3 and source.shape[2] == 3)):
            got = f"an array of {source.dtype} {source.shape}"
            raise ValueError(f"images must be {_KINDS}, got {got}")
        source = Image.fromarray(np.ascontiguousarray(source))
    return read_image(source)
