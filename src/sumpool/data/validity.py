"""Checks of a data set: enough images in each class, every image readable."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor
from tqdm import tqdm

from sumpool.data.base import BrokenImageError, DataError, ImageDataset
from sumpool.data.feeds.threads import map_ahead
from sumpool.data.splits import contiguous_labels
from sumpool.system.cores import usable_cores

#: How many images of a class an error names.
NAMED = 3


def check_class_sizes(data: ImageDataset | Tensor | Sequence[int], minimum: int = 2) -> None:
    """Raise if a class that occurs has fewer than ``minimum`` images.

    Args:
        data: A data set, whose class names and files the error then gives, or labels (N,).
        minimum: The fewest images a class may have.

    Raises:
        DataError: Names the first such class and its images, and counts the others.

    Example:
        >>> check_class_sizes([4, 4, 9])
        Traceback (most recent call last):
        sumpool.data.base.DataError: class 9 has 1 image, at least 2 are needed: number 2
    """
    labels, values = contiguous_labels(data.labels if isinstance(data, ImageDataset) else data)
    sizes = torch.bincount(labels, minlength=len(values))
    small = (sizes < minimum).nonzero().squeeze(1).tolist()
    if not small:
        return
    first = small[0]
    images = (labels == first).nonzero().squeeze(1).tolist()
    value = int(values[first])
    if isinstance(data, ImageDataset):
        name = f"the class {data.class_names[value]!r}"
        where = [data.item_name(it) for it in images[:NAMED]]
    else:
        name, where = f"class {value}", [f"number {it}" for it in images[:NAMED]]
    places = ", ".join(where) + (", …" if len(images) > NAMED else "")
    others = f" (and {len(small) - 1:,} more classes have too few)" if len(small) > 1 else ""
    plural = "" if len(images) == 1 else "s"
    raise DataError(
        f"{name} has {len(images)} image{plural}, at least {minimum} are needed: {places}{others}"
    )


def readable(
    dataset: ImageDataset, progress: bool = True, workers: int | None = None
) -> tuple[Tensor, list[tuple[str, str]]]:
    """Decode every image once to find out which can be read.

    Args:
        dataset: The images.
        progress: Whether to show a progress bar.
        workers: Threads that decode; None is one per core.

    Returns:
        Indices of the readable images, ascending, and name and reason of the others:
        ``dataset.subset(indices)`` is the data set without them.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")

    def problem(index: int) -> str | None:
        try:
            dataset.load(index)
        except BrokenImageError as error:
            return error.reason
        return None

    threads = workers or usable_cores()
    with (
        contextlib.closing(map_ahead(problem, range(len(dataset)), threads, 8 * threads)) as found,
        tqdm(found, "checking images", len(dataset), unit=" images", disable=not progress) as bar,
    ):
        reasons = list(bar)
    good = [it for it, reason in enumerate(reasons) if reason is None]
    broken = [(dataset.item_name(it), reason) for it, reason in enumerate(reasons) if reason]
    return torch.tensor(good, dtype=torch.int64), broken
