"""Settings and data of the study of proxies in the plane: digits, MNIST or Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.data import ImageDataset, open_dataset
from sumpool.data.sets.arrays import ImageArrays
from sumpool.data.splits import first_of_each_class
from sumpool.studies.shared.cifar import find_format
from sumpool.training.splits import Splits, TestSet

#: Data sets in the file layout of MNIST, by format name.
SOURCES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
#: Largest gray value of scikit-learn's digits, which have 17 levels.
_LEVELS = 16


@dataclass(frozen=True)
class PlaneSettings:
    """Settings shared by all cells."""

    data: str  #: Training data: "digits", "MNIST" or "Fashion-MNIST"
    format: str  #: Format of the data, a key of ``SOURCES``; digits count as MNIST
    backbone: str
    side: int  #: Side of the network's input images
    loss: str = "c2"  #: Pair loss between images and proxies
    #: Distance up to which images and proxies of the same class cost nothing. With the catalog's
    #: 0.27, nothing would favor a smaller covering radius.
    pos_margin: float = 0.0
    #: Distance beyond which images and proxies of different classes cost nothing: that of neighbors
    #: among ten classes on the unit circle. With the catalog's 0.38, some space would stay unused.
    neg_margin: float = 0.6
    lr: float = 2e-3  #: Learning rate of Adam, also for the proxies
    steps: int = 1500
    #: Steps between validations; three without gain end a problem. The learning rate and the steps
    #: of a problem determine how far proxies can move, and so whether they meet.
    validate_every: int = 20
    batch_size: int = 40
    images_per_class: int = 4  #: Images per class in a batch
    proxies: int = 4
    pool: int = 16  #: Images per class that new proxies are picked among
    embedding_size: int = 2
    #: Share of a class's training images used for validation; for digits, also for test.
    held_out: float = 0.2
    #: Maximum training, validation and test images per class; None uses all.
    most: tuple[int, int, int] | None = None
    shown: int = 20  #: Training images per class shown in figures


#: Reduced settings for quick mode.
QUICK: dict[str, Any] = {"steps": 6, "validate_every": 1, "most": (20, 6, 6)}


def choose_settings(data: Path | None, quick: bool) -> PlaneSettings:
    """Return the settings for MNIST or Fashion-MNIST in ``data``, or for digits if None."""
    less = QUICK if quick else {}
    if data is None:
        return PlaneSettings("digits", "mnist", "small_cnn", 16, **less)
    found = find_format(data, SOURCES)
    # Validation on all held-out images would take longer than the steps before it.
    more = {"held_out": 0.1, "most": (5400, 100, 1000), **less}
    backbone = "small_cnn" if quick else "resnetv2_20"
    return PlaneSettings(SOURCES[found], found, backbone, 28, **more)


def open_parts(settings: PlaneSettings, data: Path | None, seed: int) -> Splits:
    """Open training, validation and test images of the same classes, drawn with ``seed``."""
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
    """Load the 1797 digits of scikit-learn, 8×8 gray pixels."""
    # Imported here because it takes a second and is used only here.
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (255 / _LEVELS * found.images).round().astype(np.uint8)
    labels = found.target.tolist()
    names = [str(name) for name in found.target_names]
    return ImageArrays(pixels, [(Path("digits"), len(pixels))], labels, names)


def _draw(labels: Tensor, shares: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Split each class at random into the given shares and the rest; return shuffled indices."""
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    for label in labels.unique():
        own = (labels == label).nonzero()[:, 0]
        own = own[torch.randperm(len(own), generator=generator)]
        sizes = [round(share * len(own)) for share in shares]
        split = own.split([*sizes, len(own) - sum(sizes)])
        for part, some in zip(parts, split, strict=True):
            part.append(some)
    return [torch.cat(part) for part in parts]
