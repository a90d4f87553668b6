"""The data of the study of proxies in the plane: digits, MNIST or Fashion-MNIST, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.data import ImageDataset, detect_format, open_dataset
from sumpool.data.sets.arrays import ImageArrays
from sumpool.data.splits import first_of_each_class
from sumpool.training import ConfigError
from sumpool.training.splits import Splits, TestSet

#: Data sets in the format of MNIST, by the name of their format.
SOURCES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
#: Images of scikit-learn's digits have 17 grey levels.
_LEVELS = 16


@dataclass(frozen=True)
class PlaneSettings:
    """What all cells share."""

    data: str  #: What it is trained on: "digits", "MNIST" or "Fashion-MNIST"
    format: str  #: How the files are laid out, a key of ``SOURCES``; digits count as MNIST
    backbone: str
    side: int  #: Side of the images that the network sees
    loss: str = "c2"  #: The pair loss between images and proxies
    #: Distance up to which images and proxies of a class cost nothing. With the catalog's 0.27
    #: nothing would ask for a smaller covering radius.
    pos_margin: float = 0.0
    #: Distance from which others cost nothing: that of neighbors among ten classes on the unit
    #: circle. With the catalog's 0.38 the room is not used.
    neg_margin: float = 0.6
    lr: float = 2e-3  #: Learning rate of Adam, of the proxies too
    steps: int = 1500
    #: Steps between validations, three of which without gain end a problem. Rate and steps of a
    #: problem decide how far proxies can go, and so whether they meet.
    validate_every: int = 20
    batch_size: int = 40
    images_per_class: int = 4  #: Images of each class in a batch
    proxies: int = 4
    pool: int = 16  #: Images of a class that new proxies are picked among
    embedding_size: int = 2
    #: Share of the training images of a class for validation; of digits, also for test.
    held_out: float = 0.2
    #: Most training, validation and test images of a class; None is all.
    most: tuple[int, int, int] | None = None
    shown: int = 20  #: Training images of a class that figures show


#: What is less in the quick mode.
QUICK: dict[str, Any] = {"steps": 6, "validate_every": 1, "most": (20, 6, 6)}


def choose_settings(data: Path | None, quick: bool) -> PlaneSettings:
    """The settings for MNIST or Fashion-MNIST in ``data``, or for digits without it."""
    less = QUICK if quick else {}
    if data is None:
        return PlaneSettings("digits", "mnist", "small_cnn", 16, **less)
    found = detect_format(data)
    if found not in SOURCES:
        raise ConfigError(f"data must be one of {', '.join(SOURCES)}, found {found} in {data}")
    # A validation of all that is held out would take longer than the steps before it.
    more = {"held_out": 0.1, "most": (5400, 100, 1000), **less}
    backbone = "small_cnn" if quick else "resnetv2_20"
    return PlaneSettings(SOURCES[found], found, backbone, 28, **more)


def open_parts(settings: PlaneSettings, data: Path | None, seed: int) -> Splits:
    """Training, validation and test images of the same classes; ``seed`` draws them by class."""
    generator = torch.Generator().manual_seed(seed)
    whole: ImageDataset
    tested: ImageDataset
    if data is None:
        whole = tested = digits()
        test, kept, learned = _draw(whole.labels, [settings.held_out] * 2, generator)
    else:
        whole, tested = (open_dataset(data, settings.format, part) for part in ("train", "test"))
        kept, learned = _draw(whole.labels, [settings.held_out], generator)
        (test,) = _draw(tested.labels, [], generator)
    limits = settings.most or (None, None, None)
    parts = [
        dataset.subset(first_of_each_class(dataset.labels, most, chosen))
        for dataset, chosen, most in zip(
            (whole, whole, tested), (learned, kept, test), limits, strict=True
        )
    ]
    return Splits(settings.format, parts[0], parts[1], TestSet(parts[2]))


def digits() -> ImageArrays:
    """The 1797 digits of scikit-learn, 8×8 grey pixels."""
    # Imported here: it takes a second, and is used here alone.
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (255 / _LEVELS * found.images).round().astype(np.uint8)
    labels = found.target.tolist()
    names = [str(name) for name in found.target_names]
    return ImageArrays(pixels, [(Path("digits"), len(pixels))], labels, names)


def _draw(labels: Tensor, shares: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Random parts of each class: these shares of it, and the rest; indices in random order."""
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    for label in labels.unique():
        own = (labels == label).nonzero()[:, 0]
        own = own[torch.randperm(len(own), generator=generator)]
        sizes = [round(share * len(own)) for share in shares]
        split = own.split([*sizes, len(own) - sum(sizes)])
        for part, some in zip(parts, split, strict=True):
            part.append(some)
    return [torch.cat(part) for part in parts]
