"""Names of splits, and class-disjoint splits as pure functions of labels.

Labels are arbitrary int64 values; only their equality and order matter. Indices are returned in
ascending order, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sumpool.data.base import DataError, as_labels
from sumpool.system.wording import counted


def class_fold(labels: Tensor | Sequence[int], fold: int, folds: int = 4) -> tuple[Tensor, Tensor]:
    """Split images into training and validation by one fold of the classes.

    The sorted classes are divided into ``folds`` contiguous parts of equal length (up to one
    class); part ``fold`` is for validation, the others for training. This is the cross-validation
    of the fair protocol [reality-check].

    Args:
        labels: The class of each image, (N,).
        fold: Index of the validation part, 0 … folds − 1.
        folds: Number of parts, at least 2.

    Returns:
        Indices of the training images and of the validation images.

    Raises:
        DataError: If there are fewer classes than folds.

    Example:
        >>> class_fold([7, 7, 8, 9, 9, 11], fold=1, folds=2)
        (tensor([0, 1, 2]), tensor([3, 4, 5]))
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")
    if not 0 <= fold < folds:
        raise ValueError(f"fold must lie in 0..{folds - 1} with folds={folds}, got {fold}")
    ranks, classes = contiguous_labels(labels)
    count = len(classes)
    if count < folds:
        raise DataError(f"{counted(folds, 'fold')} need as many classes, there are {count}")
    size, longer = divmod(count, folds)
    start = fold * size + min(fold, longer)
    stop = start + size + (fold < longer)
    return _parts((ranks >= start) & (ranks < stop))


def split_classes(
    labels: Tensor | Sequence[int], fraction: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Hold out the images of a random subset of the classes.

    Args:
        labels: The class of each image, (N,).
        fraction: Share of the classes to hold out, in (0, 1). The number is rounded so that at
            least two classes are held out and two kept (one each with fewer than four classes).
        seed: Determines the choice of classes.

    Returns:
        Indices of the images kept and of those held out.

    Raises:
        DataError: If there are fewer than two classes.

    Example:
        >>> kept, held_out = split_classes([5, 5, 6, 6, 7, 7, 8, 8], 0.25, seed=0)
        >>> len(kept), len(held_out)
        (4, 4)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be a number in (0, 1), got {fraction}")
    ranks, classes = contiguous_labels(labels)
    count = len(classes)
    if count < 2:
        raise DataError(f"a split by classes needs two of them, there are {count}")
    # With a single class, every retrieved image would be correct.
    least = 2 if count >= 4 else 1
    held_out = max(least, min(count - least, round(fraction * count)))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[order[:held_out]] = True
    return _parts(chosen[ranks])


def first_of_each_class(labels: Tensor, count: int | None, indices: Tensor | None = None) -> Tensor:
    """Return the indices of the first ``count`` images of each class, in ascending order.

    Args:
        labels: The class of each image, (N,).
        count: Maximum number of images per class; None for no limit.
        indices: Images to choose from, in order of preference; None for all.

    Example:
        >>> first_of_each_class(torch.tensor([4, 4, 2, 2, 4]), 1)
        tensor([0, 2])
    """
    chosen = torch.arange(len(labels)) if indices is None else indices
    if count is not None:
        own = labels[chosen]
        chosen = torch.cat([chosen[own == label][:count] for label in own.unique()])
    return chosen.sort().values


def check_split(split: str, splits: Iterable[str]) -> None:
    """Raise unless ``split`` is one of ``splits`` or "all"."""
    accepted = (*splits, "all")
    if split not in accepted:
        raise ValueError(f"split must be one of {accepted}, got {split!r}")


def halves(labels: Sequence[int], classes: int) -> list[str]:
    """Return the usual zero-shot split: first half of the classes "train", the rest "test"."""
    return ["train" if label < classes // 2 else "test" for label in labels]


def contiguous_labels(labels: Tensor | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Renumber labels 0 … C−1 in ascending order; return them, (N,), and the old values, (C,).

    Example:
        >>> contiguous_labels([2**40, 7, 7])
        (tensor([1, 0, 0]), tensor([            7, 1099511627776]))
    """
    values, new = torch.unique(as_labels(labels), sorted=True, return_inverse=True)
    return new, values


def _parts(second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices where ``second`` is False and those where it is True."""
    return (~second).nonzero().squeeze(1), second.nonzero().squeeze(1)
