"""What the papers' methods gain, each against the baseline of its own table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sumpool.bench.report.published.figures import (
    MAIN_BACKBONE,
    PublishedScore,
    beside,
    published_scores,
)


@dataclass(frozen=True)
class PublishedGain:
    """Two scores of one table, with the same setting.

    Attributes:
        ours: Score of the method.
        theirs: Score of the method that it is compared with.
    """

    ours: PublishedScore
    theirs: PublishedScore

    @property
    def difference(self) -> float:
        """Score of the method less that of the other one, as a share of 1."""
        return self.ours.mean - self.theirs.mean

    @property
    def relative(self) -> float:
        """The difference over the score of the other method."""
        return self.difference / self.theirs.mean


@cache
def _tables() -> tuple[str, ...]:
    return tuple(dict.fromkeys(score.table for score in published_scores()))


def published_gain(
    protocol: str,
    data_set: str,
    loss: str,
    method: str,
    against: str,
    dimension: int,
    metric: str,
    *,
    backbone: str = MAIN_BACKBONE,
    settings: str = "",
) -> PublishedGain | None:
    """The published gain of ``method`` over ``against``; None if no table has both.

    The method may have been published with other settings, its baseline has the usual ones.

    Tables 3.1 and 5.1 of [thesis] have the same baselines from different runs, so a gain is formed
    inside a table only.

    Example:
        >>> metric = "mean_average_precision_at_r"
        >>> gain = published_gain("fair", "cub", "c2", "gsp+zs", "gap", 128, metric)
        >>> round(gain.difference, 4), round(gain.relative, 3)
        (0.0095, 0.046)
        >>> published_gain("fair", "cub", "c2", "ccp+gap", "gap", 128, metric).ours.table
        '3.1'
    """
    where, what = (protocol, data_set, loss), (dimension, metric)
    for table in _tables():
        one, other = (
            beside(*where, label, *what, backbone=backbone, settings=own, tables=[table])
            for label, own in ((method, settings), (against, ""))
        )
        if one and other and one.backbone == other.backbone:
            return PublishedGain(one, other)
    return None
