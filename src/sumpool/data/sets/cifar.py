"""CIFAR-10 and CIFAR-100: small colour photographs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sumpool.data.base import DataError, Transform
from sumpool.data.sets.archive import Layout
from sumpool.data.sets.arrays import ImageArrays
from sumpool.data.sets.pickles import read_pickle
from sumpool.data.sets.published import Count, check_split

_SIDE = 32


class _Cifar(ImageArrays):
    layout: ClassVar[Layout]
    published: ClassVar[Mapping[str, Count]]
    _batches: ClassVar[Mapping[str, tuple[str, ...]]]

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str,
        label_key: str,
        meta: tuple[str, str],
        transform: Transform | None,
        target_transform: Transform | None,
        check_counts: bool,
    ) -> None:
        check_split(split, self._batches)
        home = self.layout.locate(root)
        names = _names(home / meta[0], meta[1])
        pixels, labels, sources = [], [], []
        for part, files in self._batches.items():
            if split not in ("all", part):
                continue
            found = []
            for file in files:
                some, their_labels = _batch(home / file, label_key, len(names))
                pixels.append(some)
                found += their_labels
                sources.append((home / file, len(some)))
            count, wanted = Count(len(set(found)), len(found)), self.published[part]
            wanted = wanted._replace(classes=min(wanted.classes, len(names)))  # coarse labels
            if check_counts and count != wanted:
                raise DataError(
                    f"{self.layout.title} in {home}: the split {part!r} must have {wanted}, "
                    f"found {count}"
                )
            labels += found
        images = (pixels[0] if len(pixels) == 1 else np.concatenate(pixels)).reshape(
            -1, 3, _SIDE, _SIDE
        )
        super().__init__(
            images.transpose(0, 2, 3, 1), sources, labels, names, transform, target_transform
        )


class CIFAR10(_Cifar):
    """CIFAR-10 [cifar]: 60,000 images of 32×32 pixels in 10 classes.

    Read from the pickles in ``cifar-10-batches-py/``, of which nothing is executed
    (:mod:`sumpool.data.sets.pickles`).

    Args:
        root: The folder the archive unpacks to, or the folder that one is in.
        split: "train" (50,000 images), "test" (10,000) or "all"; both have all classes.
        transform: Applied to an image by ``dataset[index]``.
        target_transform: Applied to a label by ``dataset[index]``.
        check_counts: Whether classes and images must be as many as published.

    Raises:
        DataError: If a file is missing, damaged or not what it should be; names it.
    """

    layout = Layout(
        "CIFAR-10",
        (*((f"data_batch_{it}",) for it in range(1, 6)), ("test_batch",), ("batches.meta",)),
        inside=("cifar-10-batches-py",),
    )
    published: ClassVar = {"train": Count(10, 50000), "test": Count(10, 10000)}
    _batches: ClassVar = {
        "train": tuple(f"data_batch_{it}" for it in range(1, 6)),
        "test": ("test_batch",),
    }

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        check_counts: bool = True,
    ) -> None:
        meta = ("batches.meta", "label_names")
        super().__init__(root, split, "labels", meta, transform, target_transform, check_counts)


class CIFAR100(_Cifar):
    """CIFAR-100 [cifar]: 60,000 images of 32×32 pixels in 100 classes of 20 super-classes.

    Read from the pickles in ``cifar-100-python/``, of which nothing is executed
    (:mod:`sumpool.data.sets.pickles`).

    Args:
        root: The folder the archive unpacks to, or the folder that one is in.
        split: "train" (50,000 images), "test" (10,000) or "all"; both have all classes.
        transform: Applied to an image by ``dataset[index]``.
        target_transform: Applied to a label by ``dataset[index]``.
        labels: "fine", the 100 classes, or "coarse", the 20 super-classes.
        check_counts: Whether classes and images must be as many as published.

    Raises:
        DataError: If a file is missing, damaged or not what it should be; names it.
    """

    layout = Layout("CIFAR-100", (("train",), ("test",), ("meta",)), inside=("cifar-100-python",))
    published: ClassVar = {"train": Count(100, 50000), "test": Count(100, 10000)}
    _batches: ClassVar = {"train": ("train",), "test": ("test",)}

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        labels: str = "fine",
        check_counts: bool = True,
    ) -> None:
        if labels not in ("fine", "coarse"):
            raise ValueError(f"labels must be one of ('fine', 'coarse'), got {labels!r}")
        meta = ("meta", f"{labels}_label_names")
        super().__init__(
            root, split, f"{labels}_labels", meta, transform, target_transform, check_counts
        )


def _names(path: Path, key: str) -> list[str]:
    names = _entry(path, read_pickle(path), key)
    if not isinstance(names, list) or not names:
        raise DataError(f"{path}: {key} must be a list of names")
    return [it.decode("latin1") if isinstance(it, bytes) else str(it) for it in names]


def _batch(path: Path, key: str, classes: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Pixels (N, 3072), channel by channel, and labels of one file."""
    content = read_pickle(path)
    pixels, labels = _entry(path, content, "data"), _entry(path, content, key)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (3 * _SIDE * _SIDE,)
    ):
        raise DataError(f"{path}: data must be an array (N, {3 * _SIDE * _SIDE}) of uint8")
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(it) is int and 0 <= it < classes for it in labels)
    ):
        raise DataError(f"{path}: {key} must be {len(pixels)} integers in 0..{classes - 1}")
    return pixels, labels


def _entry(path: Path, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise DataError(f"{path} has no entry {key!r}, only {sorted(map(str, content))}")
    return content[key]
