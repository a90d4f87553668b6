"""Base class of the center regularizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.centers.arguments import check_centers, check_integer
from sumpool.centers.pairs import Comparison, Extreme, rowwise
from sumpool.centers.subset import random_subset
from sumpool.transport.validation import solve_dtype

#: Without a subset, up to this many centers are all compared; with more, this many are drawn.
MOST_CENTERS = 2048


class CenterRegularizer(nn.Module, ABC):
    """Base class of regularizers that spread class centers; minimized as a term of a loss.

    Called with centers (C, D), or (C, K, D) for K centers per class, which are not compared with
    each other. Centers are ℓ2-normalized. Computed in float32 whatever their dtype and autocast, or
    in float64 for float64 centers.

    With a ``subset``, each call draws that many classes, whose pairs represent all pairs; only
    their centers get a gradient. Without one, up to ``MOST_CENTERS`` centers are all compared; with
    more, ``MOST_CENTERS // K`` classes are drawn. The number of draws, ``draws``, is part of the
    ``state_dict``, so that a resumed run continues the sequence of draws.

    Args:
        subset: Number of classes to draw per call, at least 2; all if there are no more.
        seed: Seed of the draws.
    """

    draws: Tensor
    #: Settings of the subclass to show in the repr.
    shown: ClassVar[tuple[str, ...]] = ()

    def __init__(self, subset: int | None = None, seed: int = 0) -> None:
        super().__init__()
        if subset is not None:
            accepted = "None or an integer of at least 2"
            subset = check_integer("subset", subset, accepted, lambda it: it >= 2)
        self.subset = subset
        accepted = "an integer in 0..2⁶³ − 1"
        self.seed = check_integer("seed", seed, accepted, lambda it: 0 <= it < 2**63)
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, centers: Tensor) -> Tensor:
        """Return the regularizer of ``centers`` (C, D) or (C, K, D), a scalar to minimize."""
        check_centers(centers)
        if centers.ndim == 2:
            centers = centers.unsqueeze(1)
        with torch.autocast(centers.device.type, enabled=False):
            drawn = self._drawn(centers)  # (c, K, D)
            self.check_size(drawn.shape[0], drawn.shape[1])
            unit = F.normalize(drawn.to(solve_dtype(centers)), dim=-1)
            return self.combine(rowwise(unit, self.row), centers.shape[0], centers.shape[1])

    def check_size(self, classes: int, each: int) -> None:
        """Raise if ``classes`` with ``each`` centers are too few; a hook for subclasses."""

    @abstractmethod
    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """Reduce rows of ``cosine`` (r, n) to (r,), over the entries where ``counts`` is True."""

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """Reduce the values of all rows; ``classes`` and ``each`` count all centers, also undrawn.

        The default is the mean.
        """
        return rows.mean()

    def _drawn(self, centers: Tensor) -> Tensor:
        count, each = centers.shape[:2]
        size = max(2, MOST_CENTERS // each) if self.subset is None else self.subset
        if size >= count:
            return centers
        with torch.no_grad():
            index = random_subset(count, size, self.seed, self.draws.to(centers.device))
            self.draws.add_(1)
        return centers.index_select(0, index)

    def extra_repr(self) -> str:
        """Return the settings for the module's repr."""
        values = {name: getattr(self, name) for name in (*self.shown, "subset", "seed")}
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in values.items()
        )


def check_kind(on: Comparison, pairs: Extreme) -> None:
    """Raise a ValueError unless ``on`` is a ``Comparison`` and ``pairs`` an ``Extreme``."""
    for name, value, choices in (
        ("on", on, get_args(Comparison)),
        ("pairs", pairs, get_args(Extreme)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
