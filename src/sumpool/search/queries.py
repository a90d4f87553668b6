"""Embed queries: whole images, or regions of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.v2.functional import pil_to_tensor

from sumpool.evaluation.gallery_regions import grid_shape
from sumpool.models import Embedder
from sumpool.system.errors import UserError
from sumpool.system.modes import evaluating
from sumpool.transport.validation import is_integer

#: Left, top, right and bottom in pixels of the upright image.
Box = tuple[float, float, float, float]


class QueryError(UserError):
    """A query cannot be answered; the message says why, or what is accepted."""


def check_k(k: int) -> int:
    """Return the number ``k`` of results as an int; raise a QueryError if it is not positive."""
    if not is_integer(k) or k < 1:
        raise QueryError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)


@dataclass(frozen=True)
class View:
    """The square of an image that the network sees.

    Attributes:
        image: The square.
        window: Position of the square, in pixels of the upright image.
        box: Region to embed, in pixels of the square; None for all of it.
    """

    image: Image.Image
    window: Box
    box: Box | None = None


@dataclass(frozen=True)
class Embedded:
    """An embedded query.

    Attributes:
        view: The square that the network saw.
        features: Local features of one image, in the layout of the pooling.
        mask: Positions that are pooled, (1, h, w) or (1, L); None for all.
        weights: Pooling weights (h, w); None if there are none or positions form no grid.
        vector: Embedding of norm 1, (D,).
    """

    view: View
    features: Tensor
    mask: Tensor | None
    weights: Tensor | None
    vector: Tensor


def check_box(box: Sequence[float], image: Image.Image) -> Box:
    """Clip ``box`` to the image.

    Raises:
        QueryError: If it is not x0, y0, x1, y1 with an area inside the image.
    """
    what = f"box must be x0,y0,x1,y1 in pixels of the image, {image.width} × {image.height}"
    try:
        x0, y0, x1, y1 = (float(value) for value in box)
    except (TypeError, ValueError):
        raise QueryError(f"{what}, got {box!r}") from None
    if not all(map(math.isfinite, (x0, y0, x1, y1))) or x0 >= x1 or y0 >= y1:
        raise QueryError(f"{what}, with x0 < x1 and y0 < y1, got {box!r}")
    cut = (max(x0, 0.0), max(y0, 0.0), min(x1, image.width), min(y1, image.height))
    if cut[0] >= cut[2] or cut[1] >= cut[3]:
        raise QueryError(f"{what}, got {box!r}, which lies outside")
    return cut


def view_of(model: Embedder, image: Image.Image, box: Box | None = None) -> View:
    """Crop the square that the network sees, shifted from the center just enough to cover a box.

    If the box is larger than the square, the square is centered on it.

    Args:
        model: Model whose preprocessing is used.
        image: An upright RGB image.
        box: See :func:`check_box`.
    """
    preprocessing = model.preprocessing
    crop, resized = preprocessing.crop, preprocessing.resized(image)
    if min(resized.size) < crop:
        raise QueryError(
            f"the image is too small, {image.width} × {image.height} pixels: the model sees "
            f"{crop} × {crop}"
        )
    scale = (resized.width / image.width, resized.height / image.height)
    starts, inside = [], []
    for axis, size in enumerate(resized.size):
        start = round((size - crop) / 2)
        if box is not None:
            low, high = box[axis] * scale[axis], box[axis + 2] * scale[axis]
            if high - low > crop:
                start = round((low + high - crop) / 2)
            else:
                start = max(min(start, math.floor(low)), math.ceil(high) - crop)
            start = max(0, min(start, size - crop))
            inside.append((max(low - start, 0.0), min(high - start, float(crop))))
        starts.append(start)
    left, top = starts
    window = (left / scale[0], top / scale[1], (left + crop) / scale[0], (top + crop) / scale[1])
    seen = resized.crop((left, top, left + crop, top + crop))
    if box is None:
        return View(seen, window)
    (x0, x1), (y0, y1) = inside
    return View(seen, window, (x0, y0, x1, y1))


def box_mask(box: Box, side: int, grid: tuple[int, int]) -> Tensor:
    """Mark the positions of a ``grid`` on a square of ``side`` pixels with centers in ``box``.

    If there are none, mark the position nearest to the center of the box.

    Returns:
        A Boolean tensor (h, w) with at least one True.

    Example:
        >>> box_mask((0, 0, 5, 10), 10, (2, 2))
        tensor([[ True, False],
                [ True, False]])
    """
    ys, xs = ((torch.arange(count) + 0.5) * side / count for count in grid)
    x0, y0, x1, y1 = box
    mask = ((ys >= y0) & (ys < y1))[:, None] & ((xs >= x0) & (xs < x1))
    if not mask.any():
        row = int((ys - (y0 + y1) / 2).abs().argmin())
        mask[row, int((xs - (x0 + x1) / 2).abs().argmin())] = True
    return mask


@torch.no_grad()
def embed_query(
    model: Embedder, image: Image.Image, box: Sequence[float] | None = None
) -> Embedded:
    """Embed ``image``, or the region in ``box``, by pooling only the positions inside.

    Raises:
        QueryError: If the image is too small, or the pooling cannot be limited to a region.
    """
    view = view_of(model, image, None if box is None else check_box(box, image))
    device = next(model.parameters()).device
    pixels = pil_to_tensor(view.image)[None].to(device)
    with evaluating(model):
        features = model.feature_map(model.preprocessing.normalize(pixels))
        positions = model.pooling.to_tokens(features)[1]
        grid = grid_shape(positions)
        mask = None
        if view.box is not None:
            if grid is None:
                raise QueryError(
                    f"the {positions[0]} positions of this model form no square: it cannot search "
                    "by part of an image"
                )
            mask = box_mask(view.box, model.preprocessing.crop, grid)
            mask = mask.reshape(1, *positions).to(device)
        try:
            pooled = model.pooling.pool(features, mask)
        except ValueError as error:
            if mask is None:
                raise
            raise QueryError(f"this model cannot search by part of an image: {error}") from error
        vector = F.normalize(model.embedding(pooled.embedding)[0].float(), dim=-1)
    if not bool(vector.isfinite().all()):
        raise QueryError("the embedding of the query is not finite: the model is damaged")
    weights = None
    if pooled.weights is not None and grid is not None:
        weights = pooled.weights[0].float().reshape(grid).cpu()
    return Embedded(view, features, mask, weights, vector.cpu())
