"""MNIST and Fashion-MNIST: small grey pictures of digits and of clothes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import numpy as np

from sumpool.data.base import DataError, Transform
from sumpool.data.sets.archive import Layout
from sumpool.data.sets.arrays import ImageArrays
from sumpool.data.sets.idx import find_idx, read_idx
from sumpool.data.sets.published import Count, check_split

_SIDE = 28
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_WANTED = tuple((name, f"{name}.gz") for names in _FILES.values() for name in names)


class MNIST(ImageArrays):
    """MNIST [mnist]: 70,000 handwritten digits, 28×28 grey pixels, given as RGB.

    Read from the four IDX files, plain or ``.gz``, in ``root`` or in the places where torchvision
    puts them.

    Args:
        root: The folder of the files, or one that has it as ``MNIST/raw``.
        split: "train" (60,000 images), "test" (10,000) or "all"; both have all classes.
        transform: Applied to an image by ``dataset[index]``.
        target_transform: Applied to a label by ``dataset[index]``.
        check_counts: Whether classes and images must be as many as published.

    Raises:
        DataError: If a file is missing, damaged or not what it should be; names it.
    """

    layout: ClassVar[Layout] = Layout("MNIST", _WANTED, inside=("MNIST/raw", "raw", "MNIST"))
    published: ClassVar = {"train": Count(10, 60000), "test": Count(10, 10000)}
    names: ClassVar[tuple[str, ...]] = tuple("0123456789")
    #: Which data set four files of these names hold shows in the first training labels alone.
    first_labels: ClassVar[tuple[int, ...]] = (5, 0, 4, 1, 9, 2, 1, 3, 1, 4)

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "all",
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        check_counts: bool = True,
    ) -> None:
        check_split(split, _FILES)
        home = self.layout.locate(root)
        pixels, labels, sources = [], [], []
        for part, names in _FILES.items():
            if split not in ("all", part):
                continue
            image_file, label_file = (self.layout.path(home, name) for name in names)
            some, their_labels = read_idx(image_file, 3), read_idx(label_file, 1)
            if some.shape[1:] != (_SIDE, _SIDE):
                raise DataError(
                    f"{image_file} must hold images of {_SIDE}×{_SIDE}, got shape {some.shape}"
                )
            if len(their_labels) != len(some):
                raise DataError(
                    f"{label_file} has {len(their_labels):,} labels for the {len(some):,} images "
                    f"of {image_file}"
                )
            if len(some) and their_labels.max() >= len(self.names):
                raise DataError(
                    f"{label_file} must hold labels in 0..{len(self.names) - 1}, "
                    f"got {their_labels.max()}"
                )
            found, wanted = Count(len(np.unique(their_labels)), len(some)), self.published[part]
            if check_counts and found != wanted:
                raise DataError(f"{image_file} must have {wanted}, found {found}")
            pixels.append(some)
            labels.append(their_labels)
            sources.append((image_file, len(some)))
        super().__init__(
            np.concatenate(pixels),
            sources,
            np.concatenate(labels).tolist(),
            self.names,
            transform,
            target_transform,
        )

    @classmethod
    def recognizes(cls, home: Path) -> bool:
        """Whether the files in ``home`` are this data set and not one with files of such names."""
        path = find_idx(home, _FILES["train"][1])
        if path is None:
            return False
        labels = read_idx(path, 1)[: len(cls.first_labels)]
        return tuple(labels.tolist()) == cls.first_labels


class FashionMNIST(MNIST):
    """Fashion-MNIST [fashion-mnist]: 70,000 pictures of clothes in the sizes and files of MNIST.

    Its arguments are those of :class:`MNIST`; the folder may also be ``FashionMNIST/raw``.
    """

    layout = Layout("Fashion-MNIST", _WANTED, inside=("FashionMNIST/raw", "raw", "FashionMNIST"))
    names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    first_labels = (9, 0, 0, 3, 0, 2, 7, 2, 5, 5)
