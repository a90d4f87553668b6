"""Published scores, read from the files beside this module, and the gains between them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

#: The files, in the order in which their scores are taken where several have one: the tables of
#: GSP with their spread first, then those of CCP.
TABLES = ("5.1", "5.2", "5.3", "5.4", "3.1", "3.2")
#: The network of the papers' main tables.
MAIN_BACKBONE = "bn_inception"


@dataclass(frozen=True)
class PublishedScore:
    """One number of a published table.

    Attributes:
        source: Key of the paper in docs/references.md.
        table: Number of the table.
        page: Page that the table is on, as the list of tables has it.
        row: Name of the row, as printed.
        protocol: ``fair``, ``conventional`` or ``tuning``.
        data_set: ``cub``, ``cars196``, ``sop`` or ``inshop``.
        backbone: Name of the network.
        dimension: How many dimensions were searched.
        loss: A key of ``sumpool.losses.LOSSES``; empty where the table quotes another paper.
        method: Our label of the method, such as ``gsp+zs``; empty where the loss is.
        settings: Options other than the usual ones, as ``--set`` takes them; empty for the usual.
        metric: ``mean_average_precision_at_r`` or ``precision_at_1``.
        mean: The score, as a share of 1.
        std: Its standard deviation; None if the table has none.
        doubt: Why the number cannot be right as printed; empty if nothing speaks against it.
        note: What else a reader must know.
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
        """Whether the table quotes another paper, whose setting is its own."""
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
    # In decimals: 57.48 percent are 0.5748, not 0.5748000000000001.
    return float(Decimal(percent) / 100)


def published_scores() -> list[PublishedScore]:
    """Every published score, table by table and row by row as printed.

    Example:
        >>> len(published_scores())
        660
    """
    return list(_read())


def find(**wanted: Any) -> list[PublishedScore]:
    """The published scores with these attributes, those of the preferred table first.

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
    """The published score to print beside one of ours; None if there is none.

    Scores of the same network come first, then those of the papers' main one. Doubtful and quoted
    ones are never taken, nor those of other ``tables``, if any are given.

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
    """What can be set beside a score of ours, by what it is a score of."""
    found: dict[_Key, list[PublishedScore]] = {}
    for it in _read():
        if not (it.doubt or it.quoted):
            where = (it.protocol, it.data_set, it.loss, it.method)
            found.setdefault((*where, it.dimension, it.metric, it.settings), []).append(it)
    return found


class PublishedSteps(NamedTuple):
    """How many steps training took, table 3.3 of [thesis], rounded averages of four models.

    Attributes:
        row: Name of the row, as printed.
        loss: A key of ``sumpool.losses.LOSSES``.
        method: Our label of the method.
        data_set: ``sop`` or ``inshop``.
        steps: Steps.
    """

    row: str
    loss: str
    method: str
    data_set: str
    steps: int


def published_steps() -> list[PublishedSteps]:
    """Every number of table 3.3, row by row as printed.

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
    for table in dict.fromkeys(score.table for score in _read()):
        one, other = (
            beside(*where, label, *what, backbone=backbone, settings=own, tables=[table])
            for label, own in ((method, settings), (against, ""))
        )
        if one and other and one.backbone == other.backbone:
            return PublishedGain(one, other)
    return None
