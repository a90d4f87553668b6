"""Preprocessing of images to network inputs: the random train view and the central test view."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from sumpool.data.views.boxes import DRAWS, central_boxes, random_boxes, random_flips
from sumpool.transport.validation import is_integer

#: Kind of train view: a random box ("crop") or the central one ("none").
Augmentation = Literal["crop", "none"]


@dataclass(frozen=True)
class Preprocessing:
    """Conversion of RGB images of any size to network inputs.

    Both views first resize the shorter side to ``resize``. The test view then crops the central
    ``crop`` × ``crop`` pixels. The train view resizes a random box to ``crop`` × ``crop``, or
    ``train_crop`` × ``train_crop``, and mirrors it with probability 1/2. The defaults are those of
    the experiments in [gsp], with the color statistics of ImageNet.

    Args:
        resize: Length of the shorter side in pixels; None for no resizing.
        crop: Side length of the network input in pixels.
        mean: Mean of the color channels, on the scale 0 to 1.
        std: Standard deviation of the color channels, on the same scale.
        augment: Train view: "crop" for a random box, "none" for the central one.
        flip: Whether to mirror the train view with probability 1/2.
        area: Minimum and maximum area of a random box in square pixels (after ``resize``). None is
            40² to 256² for a shorter side of 256, scaled in proportion to ``resize``, or to
            ``crop`` if ``resize`` is None.
        aspect: Minimum and maximum ratio of width to height of a random box.
        area_share: Replaces ``area``: minimum and maximum area as shares of the whole image, in
            (0, 1].
        train_crop: Side length of the train view; None for ``crop``. Random boxes magnify objects,
            so a network trained on smaller views finds objects of familiar size in larger test
            views [fixres].

    Example:
        >>> preprocessing = Preprocessing(resize=64, crop=56, area=(10**2, 64**2))
        >>> view = preprocessing.test_view()
        >>> pixels = view(Image.new("RGB", (80, 120)))
        >>> pixels.dtype, pixels.shape
        (torch.uint8, torch.Size([3, 56, 56]))
        >>> preprocessing.normalize(pixels).amin()
        tensor(-2.1179)
    """

    resize: int | None = 256
    crop: int = 227
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    augment: Augmentation = "crop"
    flip: bool = True
    area: tuple[float, float] = None  # type: ignore[assignment]  # filled in below
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    area_share: tuple[float, float] | None = None
    train_crop: int | None = None

    def __post_init__(self) -> None:
        for name in ("resize", "crop", "train_crop"):
            side = getattr(self, name)
            if is_integer(side):
                object.__setattr__(self, name, int(side))  # NumPy's cannot be written as JSON
            elif side is not None or name == "crop":
                raise TypeError(f"{name} must be an integer, got {side!r}")
        if self.area is None:
            side = self.crop if self.resize is None else self.resize
            object.__setattr__(self, "area", ((side * 40 / 256) ** 2, float(side**2)))
        # Lists, e.g. from JSON or YAML, would make the instance unhashable.
        lengths = {"mean": 3, "std": 3, "area": 2, "aspect": 2}
        if self.area_share is not None:
            lengths["area_share"] = 2
        for name, length in lengths.items():
            values = getattr(self, name)
            if not isinstance(values, Sequence | np.ndarray) or len(values) != length:
                raise ValueError(f"{name} must be {length} numbers, got {values}")
            plain = (it.item() if isinstance(it, np.generic) else it for it in values)
            object.__setattr__(self, name, tuple(plain))
        if self.crop < 1:
            raise ValueError(f"crop must be at least 1, got {self.crop}")
        if self.train_crop is not None and self.train_crop < 1:
            raise ValueError(f"train_crop must be None or at least 1, got {self.train_crop}")
        if self.resize is not None and self.resize < self.crop:
            raise ValueError(f"resize must be None or at least crop {self.crop}, got {self.resize}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")
        if self.augment not in get_args(Augmentation):
            known = ", ".join(get_args(Augmentation))
            raise ValueError(f"augment must be one of {known}, got {self.augment!r}")
        for name in ("area", "aspect"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} must be positive and in order, got {(low, high)}")
        if self.area_share is not None and not 0 < self.area_share[0] <= self.area_share[1] <= 1:
            raise ValueError(
                f"area_share must lie in (0, 1] and be in order, got {self.area_share}"
            )
        if self.augment == "none" and self.train_crop not in (None, self.crop):
            raise ValueError(
                f"train_crop must be None or crop, {self.crop}, with augment 'none', got "
                f"{self.train_crop}"
            )
        if self.augment == "crop" and self.resize is not None:
            most = self.resize**2
            # Larger boxes would rarely fit into a square image, and the whole image be shown.
            if self.area[1] > most * (1 + 1e-9):
                raise ValueError(f"area must not exceed resize², {most}, got {self.area}")

    def train_view(self) -> v2.Transform:
        """Return the random view as a torchvision transform, PIL RGB → uint8 (3, side, side).

        It draws from torch's global generator, as torchvision's transforms do. Feeds draw by step
        and position instead (:meth:`train_pixels`).
        """
        return _TrainView(self)

    @property
    def train_side(self) -> int:
        """Side length of the train view in pixels."""
        return self.crop if self.train_crop is None else self.train_crop

    def test_view(self) -> v2.Transform:
        """Return the central view as a torchvision transform, PIL RGB → uint8 (3, crop, crop)."""
        return _TestView(self)

    def test_pixels(self, image: Image.Image) -> Tensor:
        """Return the central view of ``image``, uint8 (3, crop, crop)."""
        return self.test_of_resized(self.resized(image))

    def test_of_resized(self, image: Image.Image) -> Tensor:
        """Return :meth:`test_pixels` for an image already resized by :meth:`resized`."""
        (box,) = self.test_boxes(_sizes(image)).tolist()
        return _tensor(F.crop(image, *box))

    def train_pixels(self, image: Image.Image, draws: NDArray[np.float64]) -> Tensor:
        """Return the random view given uniform numbers (``DRAWS``,), uint8 (3, side, side)."""
        return self.view_of_resized(self.resized(image), draws)

    def view_of_resized(self, image: Image.Image, draws: NDArray[np.float64]) -> Tensor:
        """Return :meth:`train_pixels` for an image already resized by :meth:`resized`."""
        boxes, flips = self.train_boxes(_sizes(image), draws[None])
        (box,) = boxes.tolist()
        view = F.resized_crop(image, *box, size=[self.train_side, self.train_side])
        return _tensor(F.horizontal_flip(view) if flips[0] else view)

    def resized(self, image: Image.Image) -> Image.Image:
        """Resize the shorter side of ``image`` to ``resize`` (bilinear, antialiased)."""
        return resize_shorter_side(image, self.resize)

    def train_boxes(
        self, sizes: NDArray[np.int64], draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the boxes of the train views of resized images.

        Args:
            sizes: Height and width of the images, (b, 2).
            draws: Uniform numbers, (b, ``DRAWS``).

        Returns:
            Boxes (b, 4) as top, left, height and width, and whether each is mirrored, (b,).
        """
        if self.augment == "crop":
            low, high = self.area
            if self.area_share is not None:
                pixels = sizes.prod(1, keepdims=True)  # (b, 1)
                low, high = (share * pixels for share in self.area_share)
            boxes = random_boxes(sizes, draws, (low, high), self.aspect)
        else:
            boxes = central_boxes(sizes, self.crop)
        return boxes, random_flips(draws) & self.flip

    def test_boxes(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the boxes (b, 4) of the test views of resized images; see :meth:`train_boxes`."""
        return central_boxes(sizes, self.crop)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalize pixels (..., 3, H, W) on 0..255: (x / 255 − mean) / std, float32."""
        scale, shift = color_affine(self.mean, self.std, pixels.device)
        return torch.addcmul(shift, pixels.float(), scale)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a JSON-serializable dictionary."""
        values = asdict(self)
        return {key: list(it) if isinstance(it, tuple) else it for key, it in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Build an instance from the output of :meth:`to_dict`; missing keys take their defaults.

        Raises:
            ValueError: If a key is unknown; lists the known keys.
        """
        known = [field.name for field in fields(cls)]
        unknown = [key for key in values if key not in known]
        if unknown:
            raise ValueError(
                f"unknown settings {', '.join(map(repr, unknown))}; known are {', '.join(known)}"
            )
        return cls(**values)


def resize_shorter_side(image: Image.Image, length: int | None) -> Image.Image:
    """Resize the shorter side of ``image`` to ``length`` (bilinear, antialiased) unless None."""
    return image if length is None else F.resize(image, [length])


class _TestView(v2.Transform):  # type: ignore[misc]
    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing = preprocessing

    def transform(self, inpt: Any, params: dict[str, Any]) -> Tensor:
        return self.preprocessing.test_pixels(inpt)


class _TrainView(_TestView):
    def transform(self, inpt: Any, params: dict[str, Any]) -> Tensor:
        draws = torch.rand(DRAWS, dtype=torch.float64).numpy()
        return self.preprocessing.train_pixels(inpt, draws)


def _tensor(image: Image.Image) -> Tensor:
    pixels: Tensor = F.pil_to_tensor(image)
    return pixels


def _sizes(image: Image.Image) -> NDArray[np.int64]:
    return np.array([[image.height, image.width]], dtype=np.int64)


@functools.lru_cache(maxsize=32)
def color_affine(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return scale and shift of :meth:`Preprocessing.normalize`, (3, 1, 1), cached per device."""
    # Created outside inference mode, so that gradients to pixels are possible later.
    with torch.inference_mode(False):
        deviation = torch.tensor(std, dtype=torch.float64)
        scale = 1 / (255 * deviation)
        shift = -torch.tensor(mean, dtype=torch.float64) / deviation
        return tuple(it.view(3, 1, 1).float().to(device) for it in (scale, shift))  # type: ignore[return-value]
