"""Synthetic images in the file layout of CIFAR-100, for smoke tests without the real data."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.data.sets.cifar_names import COARSE_NAMES, COARSE_OF_FINE, FINE_NAMES
from sumpool.system.files import write_atomic

_SIDE = 32
_HUES = 5
#: Standard deviation of the noise; pixels are in 0..1.
_NOISE = 0.06
_VARIATIONS = 5


def write_cifar_stand_in(
    folder: str | os.PathLike[str],
    *,
    train_per_class: int = 20,
    test_per_class: int = 10,
    seed: int = 0,
) -> Path:
    """Write synthetic images in the layout of CIFAR-100 [cifar] to ``folder/cifar-100-python``.

    Class names, numbers and superclasses are those of CIFAR-100. In the images, a superclass is one
    of five hues in one of four shapes on a gray background, and a class is the direction of the
    stripes on the shape; position, size, shade and noise vary. A few training steps suffice to
    learn this. :class:`CIFAR100` reads the files with ``check_counts=False``.

    Args:
        folder: Parent of ``cifar-100-python``, whose files are replaced.
        train_per_class: Images per class in the file ``train``, at least 1.
        test_per_class: Images per class in the file ``test``, at least 1.
        seed: Random seed; equal seeds give identical bytes.

    Returns:
        ``folder/cifar-100-python``.

    Example:
        >>> import tempfile
        >>> from sumpool.data import CIFAR100
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     home = write_cifar_stand_in(folder, train_per_class=2, test_per_class=1)
        ...     data = CIFAR100(folder, "train", check_counts=False)
        >>> home.name, len(data), data.class_names[3]
        ('cifar-100-python', 200, 'bear')
    """
    for name, value in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    home = Path(folder) / "cifar-100-python"
    splits = {"train": train_per_class, "test": test_per_class}
    for number, (split, per_class) in enumerate(splits.items()):
        _write(home / split, _batch(per_class, np.random.default_rng((seed, number))))
    meta = {"fine_label_names": list(FINE_NAMES), "coarse_label_names": list(COARSE_NAMES)}
    _write(home / "meta", meta)
    return home


def _batch(per_class: int, rng: np.random.Generator) -> dict[str, Any]:
    fine = rng.permutation(np.repeat(np.arange(len(FINE_NAMES)), per_class))
    coarse = np.array(COARSE_OF_FINE)[fine]
    images = _draw(coarse, _rank_in_superclass()[fine], rng)  # (N, 32, 32, 3)
    return {
        "data": np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(fine), -1),
        "fine_labels": fine.tolist(),
        "coarse_labels": coarse.tolist(),
        "filenames": [
            f"{FINE_NAMES[label]}_s_{number:06d}.png" for number, label in enumerate(fine.tolist())
        ],
    }


def _rank_in_superclass() -> NDArray[np.int64]:
    """Return the position of each class among those of its superclass, 0..4."""
    places = [COARSE_OF_FINE[:fine].count(coarse) for fine, coarse in enumerate(COARSE_OF_FINE)]
    return np.array(places)


def _draw(
    coarse: NDArray[np.int64], variation: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Draw images (N, 32, 32, 3) of superclasses (N,) with stripe directions (N,) in 0..4."""

    def draws(low: float, high: float) -> NDArray[np.float64]:
        return rng.uniform(low, high, (len(coarse), 1, 1))

    rows, columns = np.mgrid[:_SIDE, :_SIDE] + 0.5
    across = columns - draws(13, 19)  # (N, 32, 32)
    down = rows - draws(13, 19)
    extent = _extents(across, down)[coarse // _HUES, np.arange(len(coarse))]
    inside = np.clip(draws(8, 12) - extent + 0.5, 0, 1)[..., None]  # antialiased

    angle = np.pi * variation[:, None, None] / _VARIATIONS + draws(-0.12, 0.12)
    along = np.cos(angle) * across + np.sin(angle) * down
    stripes = 0.75 + 0.25 * np.sin(2 * np.pi * along / 6 + draws(0, 2 * np.pi))
    hue = (coarse % _HUES)[:, None, None] / _HUES + draws(-0.03, 0.03)
    phases = 2 * np.pi * (hue[..., None] - np.arange(3) / 3)
    color = (0.55 + 0.4 * np.cos(phases)) * (stripes * draws(0.8, 1))[..., None]
    ground = draws(0.2, 0.8)[..., None]

    images = inside * color + (1 - inside) * ground
    images += rng.normal(0, _NOISE, images.shape)
    pixels: NDArray[np.uint8] = (255 * np.clip(images, 0, 1) + 0.5).astype(np.uint8)
    return pixels


def _extents(across: NDArray[np.float64], down: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half the size of the disc, square, diamond and cross that reach a pixel, (4, ...)."""
    near, far = np.sort((abs(across), abs(down)), axis=0)
    return np.stack(
        [np.hypot(near, far), far * 1.15, (near + far) * 0.8, np.maximum(3 * near, far)]
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    # Protocol 4 stores arrays as shape, type and bytes, as ``read_pickle`` requires.
    write_atomic(path, pickle.dumps(content, protocol=4))
