"""Data set checks: enough images in each class, every image readable."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from tqdm import tqdm

from sumpool.data.base import Broken, BrokenImageError, DataError, ImageDataset
from sumpool.data.feeds.threads import map_ahead
from sumpool.data.splits import contiguous_labels
from sumpool.system.cores import usable_cores
from sumpool.system.wording import counted, first_few

logger = logging.getLogger(__name__)


def check_class_sizes(data: ImageDataset | Tensor | Sequence[int], minimum: int = 2) -> None:
    """Raise if any nonempty class has fewer than ``minimum`` images.

    Args:
        data: Labels (N,), or a data set, whose class names and files then appear in the error.
        minimum: Minimum number of images per class.

    Raises:
        DataError: If a class is too small; names the first such class and counts the others.

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
        where = [data.item_name(it) for it in images]
    else:
        name, where = f"class {value}", [f"number {it}" for it in images]
    others = f" (and {len(small) - 1:,} more classes have too few)" if len(small) > 1 else ""
    raise DataError(
        f"{name} has {counted(len(images), 'image')}, at least {minimum} are needed: "
        f"{first_few(where)}{others}"
    )


def find_broken(
    dataset: ImageDataset, progress: bool = True, workers: int | None = None
) -> tuple[Tensor, list[Broken]]:
    """Decode every image once to find the unreadable ones.

    Args:
        dataset: The images.
        progress: Whether to show a progress bar.
        workers: Number of decoding threads; None for one per core.

    Returns:
        Indices of the readable images, ascending, as needed for ``dataset.subset(indices)``, and
        the name and reason of each unreadable image.
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


def check_images(
    parts: Mapping[str, ImageDataset], *, skip_broken: bool, progress: bool = True
) -> tuple[dict[str, ImageDataset], tuple[Broken, ...]]:
    """Decode every image of ``parts``, to find unreadable ones before a long run starts.

    Args:
        parts: Data sets by name. Those with all pixels in memory are returned unchecked.
        skip_broken: Whether to drop unreadable images with a warning instead of raising.
        progress: Whether to show a progress bar.

    Returns:
        The data sets without unreadable images, and name and reason of each of those.

    Raises:
        BrokenImageError: If an image cannot be read, unless ``skip_broken``; counts all and names
            the first few. In any case if no image of a part can be read.
    """
    kept, broken = dict(parts), dict[str, str]()
    for name, dataset in parts.items():
        if dataset.in_memory:
            continue
        good, bad = find_broken(dataset, progress)
        broken |= bad
        if bad and len(good):
            kept[name] = dataset.subset(good)
        elif bad:
            raise BrokenImageError(f"no image is left: {BrokenImageError.of(bad)}")
    found = tuple(broken.items())
    if found and not skip_broken:
        raise BrokenImageError.of(found)
    if found:
        logger.warning("left out: %s", BrokenImageError.of(found))
    return kept, found
