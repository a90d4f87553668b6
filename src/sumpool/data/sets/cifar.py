"""CIFAR-10 and CIFAR-100: small color photographs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.arrays import PublishedArrays
from sumpool.data.sets.pickles import read_pickle
from sumpool.data.sets.published import Count

_SIDE = 32


class CIFAR10(PublishedArrays):
    """CIFAR-10 [cifar]: 60,000 images of 32×32 pixels in 10 classes.

    Read from the pickles in ``cifar-10-batches-py/`` without executing them
    (:mod:`sumpool.data.sets.pickles`). Splits: "train" (50,000 images), "test" (10,000) and "all";
    every split has all classes. See :class:`~sumpool.data.sets.published.Published` for the
    arguments.
    """

    layout = ArchiveLayout(
        "CIFAR-10",
        (*((f"data_batch_{it}",) for it in range(1, 6)), ("test_batch",), ("batches.meta",)),
        inside=("cifar-10-batches-py",),
    )
    published: ClassVar = {"train": Count(10, 50000), "test": Count(10, 10000)}
    _batches: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{it}" for it in range(1, 6)),
        "test": ("test_batch",),
    }
    #: File of the class names, the key of the names in it, and the key of the labels.
    _keys: tuple[str, str, str] = ("batches.meta", "label_names", "labels")

    def read_names(self, home: Path) -> list[str]:
        """Read the class names from the archive."""
        file, key, _ = self._keys
        path = home / file
        names = _entry(path, read_pickle(path), key)
        if not isinstance(names, list) or not names:
            raise DataError(f"{path}: {key} must be a list of names")
        return [it.decode("latin1") if isinstance(it, bytes) else str(it) for it in names]

    def read(
        self, home: Path, part: str, classes: int
    ) -> Iterator[tuple[Path, NDArray[np.uint8], list[int]]]:
        """Yield path, images and labels of each file of a split."""
        key = self._keys[2]
        for path in (home / file for file in self._batches[part]):
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
            # The file stores channels first.
            yield path, pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1), labels


class CIFAR100(CIFAR10):
    """CIFAR-100 [cifar]: 60,000 images of 32×32 pixels in 100 classes of 20 superclasses.

    Read from the pickles in ``cifar-100-python/`` without executing them. Splits: "train" (50,000
    images), "test" (10,000) and "all"; every split has all classes.

    Args:
        root: The folder of the archive, or the folder that contains it.
        split: "train", "test" or "all".
        labels: "fine" for the 100 classes, "coarse" for the 20 superclasses.
        options: Further arguments of :class:`~sumpool.data.sets.published.Published`.

    Raises:
        DataError: If a file is missing, damaged or invalid, or a count differs.
    """

    layout = ArchiveLayout(
        "CIFAR-100", (("train",), ("test",), ("meta",)), inside=("cifar-100-python",)
    )
    published: ClassVar = {"train": Count(100, 50000), "test": Count(100, 10000)}
    _batches: ClassVar = {"train": ("train",), "test": ("test",)}

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        *,
        labels: str = "fine",
        **options: Any,
    ) -> None:
        if labels not in ("fine", "coarse"):
            raise ValueError(f"labels must be one of ('fine', 'coarse'), got {labels!r}")
        self._keys = ("meta", f"{labels}_label_names", f"{labels}_labels")
        super().__init__(root, split, **options)


def _entry(path: Path, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise DataError(f"{path} has no entry {key!r}, only {sorted(map(str, content))}")
    return content[key]
