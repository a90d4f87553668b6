"""Base class of all data sets: labels, class names, RGB images, and the errors raised for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from sumpool.system.errors import UserError
from sumpool.system.wording import counted, first_few

Transform = Callable[[Any], Any]
#: Name of an image that cannot be read, and the reason.
Broken = tuple[str, str]


class Transforms(TypedDict, total=False):
    """Keyword arguments of all data sets: the transforms ``dataset[index]`` applies."""

    transform: Transform | None
    target_transform: Transform | None


class DataError(UserError):
    """Invalid or unreadable data; the message names the file."""


class BrokenImageError(DataError):
    """An image cannot be read.

    Args:
        message: Name of the image and why it cannot be read.
        reason: The reason alone; the whole message if None.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        # Only the message goes to the base class: worker errors are rebuilt from that argument.
        super().__init__(message)
        self.reason = message if reason is None else reason

    @classmethod
    def of(cls, broken: Sequence[Broken]) -> BrokenImageError:
        """Return one error for several images: it counts all and names the first few.

        >>> print(BrokenImageError.of([("a.jpg", "it is empty")]))
        cannot read the image a.jpg: it is empty
        >>> print(BrokenImageError.of([(f"{it}.jpg", "empty") for it in "abcd"]))
        cannot read 4 images: a.jpg (empty), b.jpg (empty), c.jpg (empty) and 1 more
        """
        if len(broken) == 1:
            name, reason = broken[0]
            return cls(f"cannot read the image {name}: {reason}", reason)
        named = first_few([f"{name} ({reason})" for name, reason in broken])
        return cls(f"cannot read {counted(len(broken), 'image')}: {named}")


class ImageDataset(Dataset[tuple[Any, Any]], ABC):
    """Labeled images with the interface of torchvision's data sets.

    Subclasses define :meth:`load` and :meth:`item_name`, pure functions of the index that threads
    and processes may call concurrently.

    Args:
        labels: The class of each image, (N,) integers that index ``class_names``.
        class_names: One name per class, shared by all splits of a data set; a split may lack
            images of some classes.
        transform: Applied to an image, a PIL image in RGB, by ``dataset[index]``.
        target_transform: Applied to a label, an int, by ``dataset[index]``.

    Attributes:
        labeled: Whether the images have class labels; if not, all belong to a single class.
        in_memory: Whether all pixels are in memory, so that no image can be broken.
    """

    labeled = True
    in_memory = False

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        class_names: Sequence[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        self.labels = as_labels(labels)  # (N,) int64
        self.class_names = tuple(class_names)
        count = len(self.class_names)
        if self.labels.numel():
            low, high = (int(value) for value in self.labels.aminmax())
            if low < 0 or high >= count:
                raise ValueError(
                    f"labels must index the {count} class_names, got values from {low} to {high}"
                )
        self.transform = transform
        self.target_transform = target_transform

    @abstractmethod
    def load(self, index: int) -> Image.Image:
        """Return the image at ``index`` in RGB, before any transform.

        Raises:
            BrokenImageError: If the image cannot be read; names it.
        """

    @abstractmethod
    def item_name(self, index: int) -> str:
        """Return the path of the image at ``index``, or a stable generated name."""

    def item_file(self, index: int) -> str | None:
        """Return the file that the image at ``index`` is loaded from, or None."""
        return None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return the image at ``index`` and its label, both transformed."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below the {len(self)} images, got {index}")
        image: Any = self.load(index % len(self))
        label: Any = int(self.labels[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label

    def __repr__(self) -> str:
        classes = counted(self.labels.unique().numel(), "class", "classes")
        return f"{type(self).__name__}({counted(len(self), 'image')} of {classes})"

    def subset(self, indices: Tensor | Sequence[int]) -> ImageDataset:
        """Return the images at ``indices``, in that order, with their labels and transforms."""
        return ImageSubset(self, indices)


class ImageSubset(ImageDataset):
    """A selection of the images of another data set.

    Args:
        parent: The data set to select from.
        indices: Positions of the selected images, in order; they may repeat.

    Attributes:
        parent: The data set that loads the images; for a subset of a subset, the original one.
        indices: Positions of the images in ``parent``, (N,) int64.
    """

    def __init__(self, parent: ImageDataset, indices: Tensor | Sequence[int]) -> None:
        chosen = as_indices(indices, len(parent))
        super().__init__(
            parent.labels[chosen], parent.class_names, parent.transform, parent.target_transform
        )
        self.parent, self.indices = parent, chosen
        self.labeled, self.in_memory = parent.labeled, parent.in_memory
        if isinstance(parent, ImageSubset):
            self.parent, self.indices = parent.parent, parent.indices[chosen]

    def load(self, index: int) -> Image.Image:
        """Return the image at ``index`` of this subset."""
        return self.parent.load(int(self.indices[index]))

    def item_name(self, index: int) -> str:
        """Return the name that the parent gives the image at ``index`` of this subset."""
        return self.parent.item_name(int(self.indices[index]))

    def item_file(self, index: int) -> str | None:
        """Return the file of the image at ``index`` of this subset."""
        return self.parent.item_file(int(self.indices[index]))


def as_indices(values: Tensor | Sequence[int], count: int) -> Tensor:
    """Convert ``values`` to an (N,) int64 CPU tensor; raise unless all lie in 0..count − 1."""
    indices = as_labels(values, "indices")
    if indices.numel():
        low, high = (int(value) for value in indices.aminmax())
        if low < 0 or high >= count:
            raise IndexError(f"indices must lie in 0..{count - 1}, got values from {low} to {high}")
    return indices


def as_labels(values: Tensor | Sequence[int], name: str = "labels") -> Tensor:
    """Convert ``values`` to an (N,) int64 CPU tensor; raise unless they are integers.

    >>> as_labels([3, 1, 2**40])
    tensor([            3,             1, 1099511627776])
    """
    if not isinstance(values, Tensor) and not len(values):
        return torch.empty(0, dtype=torch.int64)
    tensor = torch.as_tensor(values)
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {tuple(tensor.shape)}")
    return tensor.detach().to("cpu", torch.int64)
