"""MNIST and Fashion-MNIST: small gray images of digits and clothes."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.arrays import PublishedArrays
from sumpool.data.sets.published import Count

_SIDE = 28
#: Maximum uncompressed size of a file in bytes; the largest MNIST file has 47 million.
_MOST = 2**27
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_WANTED = tuple((name, f"{name}.gz") for names in _FILES.values() for name in names)


class MNIST(PublishedArrays):
    """MNIST [mnist]: 70,000 handwritten digits, 28×28 gray pixels, returned as RGB.

    Read from the four IDX files, plain or ``.gz``, in ``root`` or where torchvision stores them
    (``MNIST/raw``). Splits: "train" (60,000 images), "test" (10,000) and "all"; every split has all
    classes. See :class:`~sumpool.data.sets.published.Published` for the arguments.
    """

    layout: ClassVar = ArchiveLayout("MNIST", _WANTED, inside=("MNIST/raw", "raw", "MNIST"))
    published: ClassVar = {"train": Count(10, 60000), "test": Count(10, 10000)}
    names: ClassVar[tuple[str, ...]] = tuple("0123456789")
    #: First training labels, which distinguish data sets with the same file names.
    first_labels: ClassVar[tuple[int, ...]] = (5, 0, 4, 1, 9, 2, 1, 3, 1, 4)

    def read_names(self, home: Path) -> tuple[str, ...]:
        """Return the class names, which the files do not contain."""
        return self.names

    def read(
        self, home: Path, part: str, classes: int
    ) -> Iterator[tuple[Path, NDArray[np.uint8], list[int]]]:
        """Yield path, images and labels of the single image file of a split."""
        image_file, label_file = (self.layout.path(home, name) for name in _FILES[part])
        images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
        if images.shape[1:] != (_SIDE, _SIDE):
            raise DataError(
                f"{image_file} must hold images of {_SIDE}×{_SIDE}, got shape {images.shape}"
            )
        if len(labels) != len(images):
            raise DataError(
                f"{label_file} has {len(labels):,} labels for the {len(images):,} images of "
                f"{image_file}"
            )
        if len(labels) and labels.max() >= classes:
            raise DataError(
                f"{label_file} must hold labels in 0..{classes - 1}, got {labels.max()}"
            )
        yield image_file, images, labels.tolist()

    @classmethod
    def recognizes(cls, home: Path) -> bool:
        """Whether ``home`` holds this data set rather than another with the same file names."""
        labels = read_idx(cls.layout.path(home, _FILES["train"][1]), 1)
        return tuple(labels[: len(cls.first_labels)].tolist()) == cls.first_labels


class FashionMNIST(MNIST):
    """Fashion-MNIST [fashion-mnist]: 70,000 images of clothes, in the sizes and files of MNIST.

    The arguments are those of :class:`MNIST`; the files may be in ``FashionMNIST/raw``.
    """

    layout: ClassVar = ArchiveLayout(
        "Fashion-MNIST", _WANTED, inside=("FashionMNIST/raw", "raw", "FashionMNIST")
    )
    names = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    )  # fmt: skip
    first_labels = (9, 0, 0, 3, 0, 2, 7, 2, 5, 5)


def read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """Read an array of unsigned bytes from an IDX file.

    Args:
        path: The file; decompressed if its name ends in ``.gz``.
        ndim: Required number of dimensions.

    Raises:
        DataError: If the file is truncated, too long, damaged or of another type; names the file.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_MOST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _MOST:
        raise DataError(f"{path} holds more than {_MOST:,} bytes, which no file of MNIST does")
    start = 4 + 4 * ndim  # two zeros, the type (8: unsigned bytes), dimensions; then the shape
    if len(content) < start:
        raise DataError(f"{path} is cut short: its header has {len(content)} bytes")
    if content[:4] != bytes((0, 0, 8, ndim)):
        raise DataError(
            f"{path} is no IDX file of unsigned bytes in {ndim} dimensions: "
            f"it begins with {content[:4].hex(' ')}"
        )
    shape = tuple(np.frombuffer(content, ">u4", ndim, 4).tolist())
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} must hold {math.prod(shape):,} bytes, as its header says for shape {shape}, "
            f"found {len(content) - start:,}"
        )
    return np.frombuffer(content, np.uint8)[start:].reshape(shape)
