"""From images to network inputs: the random train view and the central test view."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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

#: What the train view shows: a random box, or the central one.
Augmentation = Literal["crop", "none"]


@dataclass(frozen=True)
class Preprocessing:
    """From an RGB image of any size to what a network is given.

    Both views first bring the shorter side to ``resize``. The test view then takes the central
    ``crop`` × ``crop`` pixels. The train view takes a random box, brings it to ``crop`` × ``crop``,
    or ``train_crop`` × ``train_crop``, and mirrors it half of the time. The defaults are those of
    the experiments [gsp], with the color statistics of ImageNet.

    Args:
        resize: Length of the shorter side, in pixels; None leaves the image as it is.
        crop: Side of what the network sees, in pixels.
        mean: Mean of the color channels, on the scale 0 to 1.
        std: Standard deviation of the color channels, on the same scale.
        augment: What the train view shows: "crop", a random box, or "none", the central one.
        flip: Whether the train view is mirrored half of the time.
        area: Least and largest area of a random box, in square pixels (after ``resize``). None is
            40² to 256² for a shorter side of 256, and in proportion for any other; for images that
            are left as they are, in proportion to ``crop``.
        aspect: Least and largest ratio of its width to its height.
        area_share: Instead of ``area``: its least and largest area as shares of the whole image,
            in (0, 1].
        train_crop: Side of the train view; None is ``crop``. A random box magnifies its part of an
            image, so that a network that learned on small views finds things of the size that it
            knows in larger test views [fixres].

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
        if self.area is None:
            side = self.crop if self.resize is None else self.resize
            object.__setattr__(self, "area", ((side * 40 / 256) ** 2, float(side**2)))
        # Lists, as they come from JSON and YAML, would make the value unhashable.
        lengths = {"mean": 3, "std": 3, "area": 2, "aspect": 2}
        if self.area_share is not None:
            lengths["area_share"] = 2
        for name, length in lengths.items():
            values = tuple(getattr(self, name))
            if len(values) != length:
                raise ValueError(f"{name} must be {length} numbers, got {values}")
            object.__setattr__(self, name, values)
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
            # Else most boxes would not fit into a square image, and all of it be shown instead.
            if self.area[1] > most * (1 + 1e-9):
                raise ValueError(f"area must not exceed resize², {most}, got {self.area}")

    def train_view(self) -> v2.Transform:
        """The random view as a torchvision transform, PIL RGB → uint8 (3, side, side).

        It draws from torch's global generator, as torchvision's transforms do. The feeds draw by
        step and position instead (:meth:`train_pixels`).
        """
        return _TrainView(self)

    @property
    def train_side(self) -> int:
        """Side of the train view, in pixels."""
        return self.crop if self.train_crop is None else self.train_crop

    def test_view(self) -> v2.Transform:
        """The central view as a torchvision transform, PIL RGB → uint8 (3, crop, crop)."""
        return _TestView(self)

    def test_pixels(self, image: Image.Image) -> Tensor:
        """The central view of ``image``, uint8 (3, crop, crop)."""
        return self.test_of_resized(self.resized(image))

    def test_of_resized(self, image: Image.Image) -> Tensor:
        """:meth:`test_pixels` of an image that went through :meth:`resized` already."""
        (box,) = self.test_boxes(_sizes(image)).tolist()
        return _tensor(F.crop(image, *box))

    def train_pixels(self, image: Image.Image, draws: NDArray[np.float64]) -> Tensor:
        """The random view of ``image`` by uniform numbers (``DRAWS``,), uint8 (3, side, side)."""
        return self.view_of_resized(self.resized(image), draws)

    def view_of_resized(self, image: Image.Image, draws: NDArray[np.float64]) -> Tensor:
        """:meth:`train_pixels` of an image that went through :meth:`resized` already."""
        boxes, flips = self.train_boxes(_sizes(image), draws[None])
        (box,) = boxes.tolist()
        view = F.resized_crop(image, *box, size=[self.train_side, self.train_side])
        return _tensor(F.horizontal_flip(view) if flips[0] else view)

    def resized(self, image: Image.Image) -> Image.Image:
        """``image`` with its shorter side brought to ``resize`` (bilinear, antialiased)."""
        return resize_shorter_side(image, self.resize)

    def train_boxes(
        self, sizes: NDArray[np.int64], draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The random views of resized images.

        Args:
            sizes: Height and width of the images, (b, 2).
            draws: Uniform numbers, (b, ``DRAWS``).

        Returns:
            Boxes (b, 4), top, left, height and width; and whether each is mirrored, (b,).
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
        """What the central views of resized images show, boxes (b, 4); see :meth:`train_boxes`."""
        return central_boxes(sizes, self.crop)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Pixels (..., 3, H, W) on 0..255 as network input: (x / 255 − mean) / std, float32."""
        scale, shift = color_affine(self.mean, self.std, pixels.device)
        return torch.addcmul(shift, pixels.float(), scale)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        values = asdict(self)
        return {key: list(it) if isinstance(it, tuple) else it for key, it in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_dict`; what is left out takes its default.

        Raises:
            ValueError: If a key is unknown; names it and those that are known.
        """
        known = [field.name for field in fields(cls)]
        unknown = [key for key in values if key not in known]
        if unknown:
            raise ValueError(
                f"unknown settings {', '.join(map(repr, unknown))}; known are {', '.join(known)}"
            )
        return cls(**values)


def resize_shorter_side(image: Image.Image, length: int | None) -> Image.Image:
    """``image`` with its shorter side of that length (bilinear, antialiased); None: as it is."""
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
    """Factor and summand of :meth:`Preprocessing.normalize`, (3, 1, 1), copied to a device once."""
    # Made outside inference mode, so that gradients to pixels are possible later.
    with torch.inference_mode(False):
        deviation = torch.tensor(std, dtype=torch.float64)
        scale = 1 / (255 * deviation)
        shift = -torch.tensor(mean, dtype=torch.float64) / deviation
        return tuple(it.view(3, 1, 1).float().to(device) for it in (scale, shift))  # type: ignore[return-value]
