"""Published scores, read from the files next to this module, and the gains between them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

#: Tables in order of precedence for scores found in several: those of GSP (5.1 has standard
#: deviations), then those of CCP.
TABLES = ("5.1", "5.2", "5.3", "5.4", "3.1", "3.2")
#: The network of the papers' main tables.
MAIN_BACKBONE = "bn_inception"


@dataclass(frozen=True)
class PublishedScore:
    """A score in a published table.

    Attributes:
        source: Key of the paper in docs/references.md.
        table: Number of the table.
        page: Page of the table, according to the list of tables.
        row: Name of the row, as printed.
        protocol: ``fair``, ``conventional`` or ``tuning``.
        data_set: ``cub``, ``cars196``, ``sop`` or ``inshop``.
        backbone: Name of the network.
        dimension: Dimension of the searched embeddings.
        loss: A key of ``sumpool.losses.LOSSES``; empty if quoted from another paper.
        method: Our label of the method, such as ``gsp+zs``; empty if the loss is.
        settings: Options that differ from the usual ones, in the syntax of ``--set``.
        metric: ``mean_average_precision_at_r`` or ``precision_at_1``.
        mean: The score, as a share of 1.
        std: Its standard deviation; None if not published.
        doubt: Why the number cannot be right as printed; empty if it is not doubtful.
        note: Further remarks.
    """

    source: str
    table: str
    page: int
    row: str
    protocol: str
    data_set: str
    backbone: str
    dimension: int
    loss: str
    method: str
    settings: str
    metric: str
    mean: float
    std: float | None
    doubt: str
    note: str

    @property
    def quoted(self) -> bool:
        """Whether the score is quoted from another paper, with settings of its own."""
        return not self.method


@cache
def _read() -> tuple[PublishedScore, ...]:
    scores = []
    for table in TABLES:
        text = (files(__package__) / f"thesis-{table}.csv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            values: dict[str, Any] = dict(row)
            values |= {name: int(row[name]) for name in ("page", "dimension")}
            values |= {"mean": _share(row["mean"])}
            values |= {"std": _share(row["std"]) if row["std"] else None}
            scores.append(PublishedScore(**values))
    return tuple(scores)


def _share(percent: str) -> float:
    # In decimals: 57.48 percent is 0.5748, not 0.5748000000000001.
    return float(Decimal(percent) / 100)


def published_scores() -> list[PublishedScore]:
    """Return all published scores, table by table and row by row as printed.

    Example:
        >>> len(published_scores())
        660
    """
    return list(_read())


def find(**wanted: Any) -> list[PublishedScore]:
    """Return the published scores with these attributes, those of preferred tables first.

    Raises:
        TypeError: If a name is not an attribute.

    Example:
        >>> found = find(table="5.1", data_set="cub", loss="c2", method="gsp+zs", dimension=128)
        >>> {one.metric: (one.mean, one.std, one.page) for one in found}["precision_at_1"][2]
        85
    """
    names = [field.name for field in fields(PublishedScore)]
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise TypeError(f"attributes must be among {', '.join(names)}, got {', '.join(unknown)}")
    return [
        score
        for score in _read()
        if all(getattr(score, name) == value for name, value in wanted.items())
    ]


def beside(
    protocol: str,
    data_set: str,
    loss: str,
    method: str,
    dimension: int,
    metric: str,
    *,
    backbone: str = MAIN_BACKBONE,
    settings: str = "",
    tables: Sequence[str] = (),
) -> PublishedScore | None:
    """Return the published score to print beside one of ours; None without one.

    Scores of the same network take precedence over those of the papers' main network. Doubtful and
    quoted scores are excluded, as are those outside ``tables``, if given.

    Example:
        >>> key = ("fair", "cub", "c2", "gap", 512, "mean_average_precision_at_r")
        >>> beside(*key).table, beside(*key).mean
        ('5.1', 0.2595)
        >>> beside(*key, tables=["3.1"]).mean
        0.2647
    """
    key = (protocol, data_set, loss, method, dimension, metric, settings)
    found = [it for it in _comparable().get(key, ()) if not tables or it.table in tables]
    by_network = {it.backbone: it for it in reversed(found)}
    return by_network.get(backbone) or by_network.get(MAIN_BACKBONE)


_Key = tuple[str, str, str, str, int, str, str]


@cache
def _comparable() -> Mapping[_Key, Sequence[PublishedScore]]:
    """Return the published scores comparable with ours, by setting and metric."""
    found: dict[_Key, list[PublishedScore]] = {}
    for it in _read():
        if not (it.doubt or it.quoted):
            where = (it.protocol, it.data_set, it.loss, it.method)
            found.setdefault((*where, it.dimension, it.metric, it.settings), []).append(it)
    return found


class PublishedSteps(NamedTuple):
    """Number of training steps, from table 3.3 of [thesis]: rounded averages of four models.

    Attributes:
        row: Name of the row, as printed.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: Our label of the method.
        data_set: ``sop`` or ``inshop``.
        steps: Number of steps.
    """

    row: str
    loss: str
    method: str
    data_set: str
    steps: int


def published_steps() -> list[PublishedSteps]:
    """Return all numbers of table 3.3, row by row as printed.

    Example:
        >>> published_steps()[0]
        PublishedSteps(row='C2', loss='c2', method='gap', data_set='sop', steps=62000)
    """
    text = (files(__package__) / "thesis-3.3.csv").read_text(encoding="utf-8")
    _, *rows = csv.reader(text.splitlines())
    return [
        PublishedSteps(row, loss, method, data_set, int(steps))
        for row, loss, method, data_set, steps in rows
    ]


@dataclass(frozen=True)
class PublishedGain:
    """Scores of a method and its baseline from the same table.

    Attributes:
        ours: Score of the method.
        theirs: Score of the baseline.
    """

    ours: PublishedScore
    theirs: PublishedScore

    @property
    def difference(self) -> float:
        """Score of the method minus that of the baseline, as a share of 1."""
        return self.ours.mean - self.theirs.mean

    @property
    def relative(self) -> float:
        """Difference as a share of the baseline's score."""
        return self.difference / self.theirs.mean


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
    """Return the published gain of ``method`` over ``against``; None if no table has both.

    ``settings`` are those of the method; its baseline has the usual ones.

    Tables 3.1 and 5.1 of [thesis] have the same baselines from different runs, so gains are only
    computed within a table.

    Example:
        >>> metric = "mean_average_precision_at_r"
        >>> gain = published_gain("fair", "cub", "c2", "gsp+zs", "gap", 128, metric)
        >>> round(gain.difference, 4), round(gain.relative, 3)
        (0.0095, 0.046)
        >>> published_gain("fair", "cub", "c2", "ccp+gap", "gap", 128, metric).ours.table
        '3.1'
    """
    where, what = (protocol, data_set, loss), (dimension, metric)
    for table in dict.fromkeys(score.table for score in _read()):
        one, other = (
            beside(*where, label, *what, backbone=backbone, settings=own, tables=[table])
            for label, own in ((method, settings), (against, ""))
        )
        if one and other and one.backbone == other.backbone:
            return PublishedGain(one, other)
    return None
