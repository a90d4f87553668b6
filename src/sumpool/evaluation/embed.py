"""Embeddings of a feed's images, by one process or by several that share the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

if TYPE_CHECKING:
    from sumpool.data import ImageFeed


class Embeddings(NamedTuple):
    """Vectors of some images of a data set, all on the CPU.

    Attributes:
        vectors: One for each image, (N, D) float32.
        labels: Their labels as the data set has them, (N,) int64.
        indices: Which images of the data set they are, (N,) int64.
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

    Where ``torch.distributed`` is initialised, every process calls this with the same arguments.
    Each embeds a part of the images, none of them twice, and all get all of them.

    Args:
        model: Maps images (B, 3, H, W) to vectors (B, D). Each module's mode is restored.
        feed: Gives the images on the device of the model.
        indices: Which images, in the order they are wanted; None is all, in the data set's order.
        batch_size: Images that go through the model together.
        progress: Whether to show a progress bar (the first process does).

    Returns:
        The embeddings in the order asked for.

    Raises:
        RuntimeError: If another process failed with its part; it raises what went wrong there.
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
    except Exception as error:
        failure = error
    return _gather(own, failure)


def _embed(
    model: nn.Module, feed: ImageFeed, indices: Tensor, batch_size: int, progress: bool
) -> Embeddings:
    # Wrapped for training, a forward pass would wait for the other processes.
    network = model.module if isinstance(model, DistributedDataParallel) else model
    parts: list[Embeddings] = []
    with (
        evaluating(network),
        tqdm(total=len(indices), desc="embedding", unit="image", disable=not progress) as bar,
    ):
        for batch in feed.test_batches(indices, batch_size):
            vectors = network(batch.images)
            if not isinstance(vectors, Tensor) or vectors.shape[:-1] != batch.labels.shape:
                got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors)
                raise TypeError(
                    f"model must map {len(batch.labels)} images to a tensor of shape "
                    f"({len(batch.labels)}, D), got {got}"
                )
            parts.append(Embeddings(vectors.float().cpu(), batch.labels.cpu(), batch.indices.cpu()))
            bar.update(len(vectors))
    return Embeddings(*(torch.cat(part) for part in zip(*parts, strict=True)))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode within; each module gets its own mode back, frozen ones too."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _gather(own: Embeddings | None, failure: Exception | None) -> Embeddings:
    """The parts of all processes in the order of their ranks."""
    # NCCL moves what is on the GPU alone.
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    size = [0, 0] if own is None else list(own.vectors.shape)
    told = torch.tensor([*size, int(failure is not None)], device=device)
    heard = [torch.empty_like(told) for _ in range(dist.get_world_size())]
    dist.all_gather(heard, told)
    sizes = torch.stack(heard).cpu()  # (world, 3)
    if failure is not None:
        raise failure
    failed = sizes[:, 2].nonzero().flatten().tolist()
    if failed:
        raise RuntimeError(f"embedding failed in process {failed[0]}, which says why")
    width = int(sizes[:, 1].max())
    if own is None:
        none = torch.empty(0, dtype=torch.int64)
        own = Embeddings(torch.empty(0, width), none, none)
    counts = sizes[:, 0].tolist()
    return Embeddings(*(_share(part, counts, device) for part in own))


def _share(own: Tensor, counts: list[int], device: torch.device) -> Tensor:
    parts = []
    for rank, count in enumerate(counts):
        mine = rank == dist.get_rank()
        part = own.to(device) if mine else own.new_empty(count, *own.shape[1:], device=device)
        if count:
            dist.broadcast(part, src=rank)
        parts.append(part.cpu())
    return torch.cat(parts)
