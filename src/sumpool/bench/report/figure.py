"""Figure of relative improvement: gains of methods in percent of their baselines.

Follows figure 5 of [gsp] and 5.7 of [thesis], with the published gains beside ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sumpool.bench.methods import AVERAGES, baseline
from sumpool.bench.report.labels import (
    backbone_name,
    caption_prefix,
    data_set_name,
    data_set_place,
    loss_name,
    loss_place,
    method_name,
    method_place,
    method_settings,
    metric_name,
    set_options,
    training_options,
)
from sumpool.bench.report.published import PublishedGain, published_gain
from sumpool.bench.report.scores import Gain, Score
from sumpool.report.style import BLUE, ORANGE, plain_text, shade, style_axes

METRIC = "mean_average_precision_at_r"


@dataclass(frozen=True)
class Improvement:
    """Gain of a method over its baseline, as a share of the baseline's score.

    Attributes:
        data_set: Name of the data set.
        loss: Name of the loss.
        method: Label of the method.
        against: Label of the baseline.
        options: Training options that were set.
        settings: Constants set for the method; empty for the usual ones.
        ours: Our gain.
        interval: Ends of its confidence interval; None if it was not measured.
        published: The published gain, if any.
    """

    data_set: str
    loss: str
    method: str
    against: str
    options: tuple[str, ...]
    settings: str
    ours: float
    interval: tuple[float, float] | None
    published: PublishedGain | None


def improvements(
    scores: Sequence[Score],
    gains: Sequence[Gain],
    protocol: str,
    backbone: str,
    dimension: int,
    metric: str = METRIC,
) -> list[Improvement]:
    """Return the improvements in one protocol with one network, in the order of the papers' tables.

    The baseline of a method is one of the ``scores`` with its loss, data set and training options.
    The interval comes from the paired gain over it, if ``gains`` has one.
    """
    setting = (protocol, backbone, dimension, metric)
    means = {
        (it.data_set, it.loss, it.method, set_options(it.note)): it.mean
        for it in scores
        if (it.protocol, it.backbone, it.dimension, it.metric) == setting
    }
    paired = {
        (it.data_set, it.loss, it.method, it.against, set_options(it.note)): it
        for it in gains
        if (it.protocol, it.backbone, it.dimension, it.metric) == setting
    }
    found = []
    for (name, loss, method, given), mean in means.items():
        options, settings = training_options(given), method_settings(given, method)
        there = [
            it for it in means if it[:2] == (name, loss) and training_options(it[3]) == options
        ]
        # The baseline has the same constants or, failing that, the usual ones.
        same = {it[2]: it for it in there if it[3] == given}
        usual = {it[2]: it for it in there if not method_settings(it[3], it[2])}
        for present in (same, usual):
            other = baseline(method, present)
            if other is None or not means[present[other]]:
                continue
            base = means[present[other]]
            gain = paired.get((name, loss, method, other, given)) if present is same else None
            published = published_gain(
                protocol, name, loss, method, other, dimension, metric, backbone=backbone,
                settings=settings,
            )  # fmt: skip
            interval = None if gain is None else (gain.low / base, gain.high / base)
            ours = mean / base - 1
            what = (name, loss, method, other, tuple(options), settings)
            found.append(Improvement(*what, ours, interval, published))
            break
    return sorted(found, key=_place)


def draw(
    found: Sequence[Improvement],
    *,
    protocol: str,
    backbone: str,
    dimension: int,
    metric: str = METRIC,
) -> Figure:
    """Draw each improvement as a bar with its interval, and the published one below it."""
    if not found:
        raise ValueError("found must have at least one improvement, got none")
    panels = sorted({it.data_set for it in found}, key=data_set_place)
    common = set.intersection(*(set(it.options) for it in found))
    names = list(dict.fromkeys(_name(it, common) for it in found))
    height = 1.8 + 0.46 * len(names)
    figure = Figure(figsize=(2.2 + 2.9 * len(panels), height), layout="constrained")
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        own = {_name(it, common): it for it in found if it.data_set == panel}
        across = f"gain in {metric_name(metric)} [% of the baseline]"
        style_axes(axes, plain_text(data_set_name(panel)), xlabel=across, grid="x")
        _bars(axes, [own.get(name) for name in names])
    grid[0].set_yticks(range(len(names)), [plain_text(name) for name in names])
    grid[0].set_ylim(len(names) - 0.45, -0.55)
    figure.suptitle(
        plain_text(f"{caption_prefix(protocol, backbone)}; {dimension} dimensions"), size=10.5
    )
    figure.legend(
        handles=_legend(found, backbone),
        loc="outside lower center",
        ncols=2,
        fontsize=8.5,
        frameon=False,
    )
    return figure


def _name(it: Improvement, common: Collection[str]) -> str:
    words = f"{loss_name(it.loss)}: {method_name(it.method)}"
    own = [*(option for option in it.options if option not in common), it.settings]
    words += f"\nset {' '.join(filter(None, own))}" if any(own) else ""
    # Plain average pooling is the usual baseline and is not mentioned.
    return words if it.against in AVERAGES else f"{words}\nover {method_name(it.against)}"


def _place(it: Improvement) -> tuple[object, ...]:
    place = loss_place(it.loss), method_place(it.method)
    return *place, it.options, it.settings, data_set_place(it.data_set)


def _bars(axes: Axes, found: Sequence[Improvement | None]) -> None:
    thick = 0.36
    for line, it in enumerate(found):
        if it is None:
            continue
        ours = 100 * it.ours
        axes.barh(line - thick / 2, ours, thick, color=BLUE)
        end = ours
        if it.interval is not None:
            low, high = (100 * limit for limit in it.interval)
            axes.plot([low, high], [line - thick / 2] * 2, color="0.25", lw=1.2)
            axes.plot([low, high], [line - thick / 2] * 2, "|", color="0.25", markersize=5)
            end = max(high, ours) if ours >= 0 else min(low, ours)
        _write(axes, end, line - thick / 2, ours)
        if it.published is not None:
            theirs = 100 * it.published.relative
            axes.barh(
                line + thick / 2, theirs, thick, color=shade(ORANGE, 1, 3), hatch="////",
                edgecolor=ORANGE, lw=0.6,
            )  # fmt: skip
            _write(axes, theirs, line + thick / 2, theirs)
    axes.axvline(0, color="0.4", lw=0.8)
    axes.margins(x=0.28)


def _write(axes: Axes, end: float, height: float, value: float) -> None:
    """Write the number past the end of its bar."""
    side = -1 if value < 0 else 1
    axes.annotate(
        f"{value:+.1f}".replace("-", "−"),
        (end, height),
        xytext=(3 * side, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        size=8,
    )


def _legend(found: Sequence[Improvement], backbone: str) -> list[Patch]:
    handles = [Patch(color=BLUE, label=plain_text(f"ours, {backbone_name(backbone)}"))]
    theirs = dict.fromkeys(
        f"published, {backbone_name(it.published.ours.backbone)}" for it in found if it.published
    )
    handles += [
        Patch(facecolor=shade(ORANGE, 1, 3), hatch="////", edgecolor=ORANGE, label=plain_text(it))
        for it in theirs
    ]
    return handles
