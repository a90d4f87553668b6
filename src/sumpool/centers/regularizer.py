"""What all center regularizers share: the draw of a subset, unit centers, pairs by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.centers.arguments import check_centers, check_integer
from sumpool.centers.pairs import Comparison, End, rowwise
from sumpool.centers.subset import random_subset
from sumpool.transport.validation import solve_dtype

#: Centers that are compared all with all unless a subset is asked for; of more, as many are drawn.
MOST_CENTERS = 2048


class CenterRegularizer(nn.Module, ABC):
    """A number that is small where class centers are well spread; added to a loss.

    Called with centers (C, D), or (C, K, D) for K centers per class, which are not compared with
    each other. They are brought to length 1. Computed in float32 whatever the centers and autocast,
    or in float64 where they are.

    With a ``subset``, each call draws that many classes, and their pairs stand in for all: only
    their centers get a gradient. Without one, up to ``MOST_CENTERS`` centers are all compared; of
    more, ``MOST_CENTERS // K`` classes are drawn. The number of draws, ``draws``, is in the
    ``state_dict``, so that a resumed run draws what comes next.

    Args:
        subset: Classes to draw per call, at least 2; where there are no more, all are taken.
        seed: Where the draws start.
    """

    draws: Tensor
    #: Settings of its own that ``print`` shows.
    shown: ClassVar[tuple[str, ...]] = ()

    def __init__(self, subset: int | None = None, seed: int = 0) -> None:
        super().__init__()
        if subset is not None:
            check_integer("subset", subset, "None or an integer of at least 2", subset >= 2)
        check_integer("seed", seed, "an integer in 0..2⁶³ − 1", 0 <= seed < 2**63)
        self.subset = subset
        self.seed = seed
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, centers: Tensor) -> Tensor:
        """The regularizer of ``centers`` (C, D) or (C, K, D), a scalar to be minimized."""
        check_centers(centers)
        if centers.ndim == 2:
            centers = centers.unsqueeze(1)
        with torch.autocast(centers.device.type, enabled=False):
            drawn = self._drawn(centers)  # (c, K, D)
            self.check_size(drawn.shape[0], drawn.shape[1])
            unit = F.normalize(drawn.to(solve_dtype(centers)), dim=-1)
            return self.combine(rowwise(unit, self.row), centers.shape[0], centers.shape[1])

    def check_size(self, classes: int, each: int) -> None:
        """Raise where ``classes`` of ``each`` centers are too few."""

    @abstractmethod
    def row(self, cosine: Tensor, counts: Tensor) -> Tensor:
        """A number (r,) for each row of ``cosine`` (r, n), over the entries that count."""

    def combine(self, rows: Tensor, classes: int, each: int) -> Tensor:
        """The regularizer from the numbers of all rows; ``classes`` of ``each`` centers in all."""
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
        """The settings, for printing."""
        values = {name: getattr(self, name) for name in (*self.shown, "subset", "seed")}
        return ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in values.items()
        )


def check_kind(on: Comparison, pairs: End) -> None:
    """Raise unless these are a comparison and an end."""
    for name, value, choices in (
        ("on", on, get_args(Comparison)),
        ("pairs", pairs, get_args(End)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
