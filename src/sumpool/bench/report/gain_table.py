"""Tables of the gains of methods over their baselines, with confidence intervals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    protocol_name,
    signed,
)
from sumpool.bench.report.published import PublishedGain, published_gain
from sumpool.bench.report.scores import Gain
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table

HEADER = ("", "data set", "dimensions", "metric", "gain", "interval", "pairs", "published")


def gain_tables(gains: Sequence[Gain], *, metrics: Sequence[str] = tuple(METRICS)) -> list[Table]:
    """Return one table per protocol and network, with rows for these ``metrics``."""
    shown = [gain for gain in gains if gain.metric in metrics]
    pairs = dict.fromkeys((gain.protocol, gain.backbone) for gain in shown)
    return [
        _table(sorted((it for it in shown if (it.protocol, it.backbone) == pair), key=_place))
        for pair in pairs
    ]


def _table(gains: Sequence[Gain]) -> Table:
    published = [_published(gain) for gain in gains]
    levels = " and ".join(f"{100 * level:g} %" for level in sorted({it.confidence for it in gains}))
    caption = (
        f"{caption_prefix(gains[0].protocol, gains[0].backbone)}: gains in percentage points, "
        f"paired by fold and seed, with {levels} confidence intervals"
    )
    tables = dict.fromkeys(
        f"{it.ours.table} with {backbone_name(it.ours.backbone)}" for it in published if it
    )
    if tables:
        caption += f"; published: [thesis], table {', '.join(tables)}"
    common = common_words(gain.note for gain in gains)
    said = [*common, *protocol_name(gains[0].protocol).split(", ")]
    caption = "; ".join([caption, *(word for word in common if word not in caption)])
    rows = [_row(gain, theirs, said) for gain, theirs in zip(gains, published, strict=True)]
    return Table(HEADER, rows, f"{caption}.")


def _row(gain: Gain, theirs: PublishedGain | None, said: Collection[str]) -> list[str]:
    words = [word for word in note_words(gain.note) if word not in said]
    note = f" ({'; '.join(words)})" if words else ""
    methods = f"{method_name(gain.method)} over {method_name(gain.against)}"
    return [
        f"{loss_name(gain.loss)}: {methods}{note}",
        data_set_name(gain.data_set),
        str(gain.dimension),
        metric_name(gain.metric),
        signed(gain.mean),
        f"[{signed(gain.low)}, {signed(gain.high)}]",
        str(gain.count),
        NOTHING if theirs is None else signed(theirs.difference),
    ]


def _published(gain: Gain) -> PublishedGain | None:
    return published_gain(
        gain.protocol,
        gain.data_set,
        gain.loss,
        gain.method,
        gain.against,
        gain.dimension,
        gain.metric,
        backbone=gain.backbone,
        settings=method_settings(gain.note, gain.method),
    )


def _place(gain: Gain) -> tuple[object, ...]:
    return (
        loss_place(gain.loss),
        method_place(gain.method),
        method_place(gain.against),
        data_set_place(gain.data_set),
        -gain.dimension,
        metric_place(gain.metric),
        gain.note,
    )
