"""Tables of a benchmark in the layout of the papers, with published scores and differences.

Rows are losses with methods, columns are data sets with dimensions and metrics, as in tables 3.1
and 5.1 of [thesis]. Each row is followed by the published scores and the differences, if any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sumpool.bench.report.labels import (
    METRICS,
    backbone_name,
    caption_prefix,
    common_words,
    data_set_name,
    data_set_place,
    loss_name,
    loss_place,
    method_name,
    method_place,
    method_settings,
    metric_name,
    metric_place,
    note_words,
    percent,
    set_options,
    signed,
)
from sumpool.bench.report.published import PublishedScore, beside
from sumpool.bench.report.scores import Incomplete, Score
from sumpool.protocols import PROTOCOLS
from sumpool.report.latex import UNDER
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table
from sumpool.system.files import StoreError


class _Column(NamedTuple):
    data_set: str
    dimension: int
    metric: str


class _Line(NamedTuple):
    loss: str
    method: str
    note: str


def score_tables(
    scores: Sequence[Score],
    incomplete: Sequence[Incomplete] = (),
    *,
    metrics: Sequence[str] = tuple(METRICS),
) -> list[Table]:
    """Return one table per protocol and network, with columns for these ``metrics``.

    Groups without a score are shown as missing and named in the caption.

    Raises:
        StoreError: If two scores belong to the same cell of a table.
    """
    shown = [score for score in scores if score.metric in metrics]
    pairs = dict.fromkeys((it.protocol, it.backbone) for it in (*shown, *incomplete))
    return [
        _score_table(
            [it for it in shown if (it.protocol, it.backbone) == pair],
            [it for it in incomplete if (it.protocol, it.backbone) == pair],
            metrics,
        )
        for pair in pairs
    ]


def _score_table(
    scores: Sequence[Score], incomplete: Sequence[Incomplete], metrics: Sequence[str]
) -> Table:
    columns = _columns(scores, incomplete, metrics)
    found = _by_place(scores)
    lines = _lines(scores, incomplete)
    one_count = len({score.count for score in scores}) == 1
    common = common_words(score.note for score in scores)
    rows: list[list[str]] = []
    taken: list[PublishedScore] = []
    ours: dict[int, dict[int, float]] = {}
    first = (*scores, *incomplete)[0]
    protocol, backbone = first.protocol, first.backbone
    for line in lines:
        own = [found.get((line, column)) for column in columns]
        theirs = [_published(protocol, backbone, line, column) for column in columns]
        ours[len(rows)] = {place: it.mean for place, it in enumerate(own) if it is not None}
        rows.append([_row_name(line, common, own, one_count), *map(_measured, own)])
        if any(theirs):
            taken += [it for it in theirs if it is not None]
            tables = ", ".join(dict.fromkeys(it.table for it in theirs if it is not None))
            rows.append([f"{UNDER} published ({tables})", *map(_printed, theirs)])
            differences = [
                signed(mine.mean - other.mean) if mine and other else NOTHING
                for mine, other in zip(own, theirs, strict=True)
            ]
            rows.append([f"{UNDER} difference", *differences])
    return Table(
        ["", *(metric_name(column.metric) for column in columns)],
        rows,
        _score_caption(scores, incomplete, taken, protocol, backbone),
        strong=_best(ours, len(columns)),
        spans=_spans(columns),
    )


def _columns(
    scores: Sequence[Score], incomplete: Sequence[Incomplete], metrics: Sequence[str]
) -> list[_Column]:
    found = {_Column(it.data_set, it.dimension, it.metric) for it in scores}
    sets = {it.data_set for it in (*scores, *incomplete)}
    others = {(it.dimension, it.metric) for it in found} or {(0, metric) for metric in metrics}
    # A data set without finished groups has the columns of the others.
    for name in sets:
        if not any(column.data_set == name for column in found):
            found |= {_Column(name, dimension, metric) for dimension, metric in others}
    return sorted(
        found, key=lambda it: (data_set_place(it.data_set), -it.dimension, metric_place(it.metric))
    )


def _spans(columns: Sequence[_Column]) -> list[list[tuple[str, int]]]:
    sets, sizes = [("", 1)], [("", 1)]
    last: tuple[str, int] | None = None
    for column in columns:
        if last is None or last[0] != column.data_set:
            sets.append((data_set_name(column.data_set), 0))
        if last != (column.data_set, column.dimension):
            sizes.append((f"{column.dimension}-d" if column.dimension else "", 0))
        sets[-1] = (sets[-1][0], sets[-1][1] + 1)
        sizes[-1] = (sizes[-1][0], sizes[-1][1] + 1)
        last = (column.data_set, column.dimension)
    return [sets, sizes]


def _line(score: Score) -> _Line:
    return _Line(score.loss, score.method, score.note)


def _by_place(scores: Iterable[Score]) -> dict[tuple[_Line, _Column], Score]:
    found: dict[tuple[_Line, _Column], Score] = {}
    for score in scores:
        place = (_line(score), _Column(score.data_set, score.dimension, score.metric))
        if place in found:
            raise StoreError(
                f"two scores are of the same thing, {found[place]} and {score}: keep one, or give "
                "runs with other options a store of their own"
            )
        found[place] = score
    return found


def _lines(scores: Sequence[Score], incomplete: Sequence[Incomplete]) -> list[_Line]:
    found = list(dict.fromkeys(_line(score) for score in scores))
    # A group without scores belongs to the row of the same method and options on other data sets.
    there = {(line.loss, line.method, set_options(line.note)) for line in found}
    others = dict.fromkeys((it.loss, it.method, it.note) for it in incomplete)
    found += [_Line(*it) for it in others if it not in there]
    return sorted(found, key=lambda it: (loss_place(it.loss), method_place(it.method), it.note))


def _row_name(
    line: _Line, common: Collection[str], own: Sequence[Score | None], one_count: bool
) -> str:
    name = f"{loss_name(line.loss)}, {method_name(line.method)}"
    words = [word for word in note_words(line.note) if word not in common]
    if not one_count:
        words += [f"of {count}" for count in sorted({it.count for it in own if it is not None})]
    return f"{name} ({'; '.join(words)})" if words else name


def _published(protocol: str, backbone: str, line: _Line, column: _Column) -> PublishedScore | None:
    return beside(
        protocol,
        column.data_set,
        line.loss,
        line.method,
        column.dimension,
        column.metric,
        backbone=backbone,
        settings=method_settings(line.note, line.method),
    )


def _measured(score: Score | None) -> str:
    if score is None:
        return NOTHING
    return percent(score.mean, score.std if score.count > 1 else None)


def _printed(score: PublishedScore | None) -> str:
    return NOTHING if score is None else percent(score.mean, score.std)


def _best(ours: dict[int, dict[int, float]], columns: int) -> set[tuple[int, int]]:
    strong = set()
    for column in range(columns):
        found = {row: means[column] for row, means in ours.items() if column in means}
        if len(found) > 1:
            top = max(found.values())
            strong |= {(row, column + 1) for row, mean in found.items() if mean == top}
    return strong


def _score_caption(
    scores: Sequence[Score],
    incomplete: Sequence[Incomplete],
    published: Sequence[PublishedScore],
    protocol: str,
    backbone: str,
) -> str:
    parts = [f"{caption_prefix(protocol, backbone)}: percent"]
    counts = sorted({score.count for score in scores})
    if counts and counts[-1] > 1:
        known = PROTOCOLS.get(protocol)
        noun = "combinations of models" if known and known.summary == "combinations" else "runs"
        spelled = " or ".join(map(str, counts))
        parts[0] += f", mean ± standard deviation over {spelled} {noun}"
    parts += [word for word in common_words(score.note for score in scores) if word not in parts[0]]
    if published:
        tables = dict.fromkeys(f"{it.table} with {backbone_name(it.backbone)}" for it in published)
        sources = ", ".join(dict.fromkeys(it.source for it in published))
        parts.append(f"published: [{sources}], table {', '.join(tables)}")
    for it in incomplete:
        parts.append(
            f"missing: {loss_name(it.loss)}, {method_name(it.method)}"
            f"{f' ({it.note})' if it.note else ''} on {data_set_name(it.data_set)}, "
            f"{it.done} of {it.wanted} runs finished"
        )
    return "; ".join(parts) + "."
