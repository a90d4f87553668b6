"""Embeddings of a feed's images, computed by one process or by several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from sumpool.system.files import StoreError
from sumpool.system.modes import evaluating

if TYPE_CHECKING:
    from sumpool.data import ImageFeed


class NotFiniteError(StoreError):
    """An embedding is not finite; the message names the image."""


class Embeddings(NamedTuple):
    """Embeddings of images of a data set, on the CPU.

    Attributes:
        vectors: One vector per image, (N, D) float32.
        labels: Labels of the images in the data set, (N,) int64.
        indices: Indices of the images in the data set, (N,) int64.
    """

    vectors: Tensor
    labels: Tensor
    indices: Tensor


@torch.no_grad()
def embed_images(
    model: nn.Module,
    feed: ImageFeed,
    *,
    indices: Tensor | Sequence[int] | None = None,
    batch_size: int = 64,
    progress: bool = False,
) -> Embeddings:
    """Embed the test views of a feed's images, in evaluation mode and without gradients.

    With ``torch.distributed`` initialized, every process calls this with the same arguments; each
    embeds a share of the images, and all receive the result.

    Args:
        model: Maps images (B, 3, H, W) to vectors (B, D). Each module's mode is restored.
        feed: Yields the images on the device of the model.
        indices: Images to embed, in this order; None embeds all, in the data set's order.
        batch_size: Images per forward pass.
        progress: Whether the first process shows a progress bar.

    Raises:
        NotFiniteError: If an embedding is not finite; the message names the image.
        RuntimeError: If another process failed; that one raises the actual error.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    wanted = torch.arange(len(feed.dataset)) if indices is None else torch.as_tensor(indices)
    if wanted.ndim != 1 or not len(wanted):
        raise ValueError(
            f"indices must be a list of at least 1 image, got shape {tuple(wanted.shape)}"
        )
    together = dist.is_available() and dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    share = wanted[rank * len(wanted) // world : (rank + 1) * len(wanted) // world]
    if not together:
        return _embed(model, feed, share, batch_size, progress)
    own, failure = None, None
    try:
        if len(share):
            own = _embed(model, feed, share, batch_size, progress and rank == 0)
    except Exception as error:  # the other processes wait for this one
        failure = error
    return _gather(own, failure)


def _embed(
    model: nn.Module, feed: ImageFeed, indices: Tensor, batch_size: int, progress: bool
) -> Embeddings:
    # A forward pass of the wrapper would wait for the other processes.
    network = model.module if isinstance(model, DistributedDataParallel) else model
    kind = next((it.dtype for it in network.parameters()), None)
    parts: list[Embeddings] = []
    with (
        evaluating(network),
        tqdm(total=len(indices), desc="embedding", unit="image", disable=not progress) as bar,
    ):
        for batch in feed.test_batches(indices, batch_size):
            same = kind in (None, torch.float32)
            vectors = network(batch.images if same else batch.images.to(kind))
            if not isinstance(vectors, Tensor) or vectors.shape[:-1] != batch.labels.shape:
                got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors)
                raise TypeError(
                    f"model must map {len(batch.labels)} images to a tensor of shape "
                    f"({len(batch.labels)}, D), got {got}"
                )
            part = Embeddings(vectors.float().cpu(), batch.labels.cpu(), batch.indices.cpu())
            _check_finite(part, feed)
            parts.append(part)
            bar.update(len(vectors))
    return Embeddings(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _check_finite(part: Embeddings, feed: ImageFeed) -> None:
    sound = part.vectors.isfinite().all(-1)
    if not bool(sound.all()):
        first = int(part.indices[~sound][0])
        raise NotFiniteError(
            f"the embedding of {feed.dataset.item_name(first)} is not finite: the weights of the "
            "model are damaged, or its training diverged; train again with a lower learning rate"
        )


def _gather(own: Embeddings | None, failure: Exception | None) -> Embeddings:
    """Concatenate the parts of all processes in the order of their ranks."""
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (own, failure is not None))
    if failure is not None:
        raise failure
    failed = [rank for rank, (_, broken) in enumerate(parts) if broken]
    if failed:
        raise RuntimeError(f"embedding failed in process {failed[0]}, which says why")
    found = [part for part, _ in parts if part is not None]
    return Embeddings(*(torch.cat(it) for it in zip(*found, strict=True)))
