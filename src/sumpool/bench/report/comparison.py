"""Means and paired gains of finished runs, whether or not their groups are complete."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from sumpool.bench.changed_options import has_options, options_text, set_apart, without_folders
from sumpool.bench.groups import Group, find_groups
from sumpool.bench.methods import Method
from sumpool.bench.report.labels import (
    METRICS,
    caption_prefix,
    data_set_name,
    loss_name,
    loss_place,
    method_name,
    method_place,
    metric_name,
    signed,
)
from sumpool.bench.store.rows import BenchRow
from sumpool.protocols import Member
from sumpool.protocols.gains import t_interval
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.files import StoreError
from sumpool.training.config import TrainConfig, with_options

#: Images that are scored.
Part = Literal["test", "validation"]
#: Options that compared runs must share: network, input and embedding size.
SAME = ("weights", "backbone_options", "freeze_backbone", "resize", "crop", "embedding_size")
#: Level of the confidence intervals.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Baseline:
    """A method that others are compared with.

    Attributes:
        label: Label of the method, such as ``gap``.
        options: Training options that its runs must have.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def has(self, group: Group) -> bool:
        """Whether ``group`` has this method and these options."""
        return _loss_and_method(group)[1] == self.label and has_options(group.config, self.options)


def comparison_tables(
    rows: Sequence[BenchRow],
    over: Sequence[Baseline] = (),
    *,
    metrics: Sequence[str] = tuple(METRICS),
    part: Part | None = None,
) -> list[Table]:
    """Return a table per protocol, data set and network, with a row per loss, method and options.

    Args:
        rows: Finished runs.
        over: Baselines of the methods.
        metrics: The metrics to show.
        part: Images that are scored; None for those of the protocol.

    Raises:
        StoreError: If a baseline has no run, or runs lack a metric.
    """
    groups = find_groups(rows, [])
    there = sorted({_loss_and_method(group)[1] for group in groups})
    if unknown := [it.label for it in over if it.label not in there]:
        raise StoreError(f"over must be one of {', '.join(there)}, got {', '.join(unknown)}")
    for it in over:
        if not any(map(it.has, groups)):
            raise StoreError(f"over: no finished run of {it.label} has {options_text(it.options)}")
    parts: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        parts.setdefault(group.key[:3], []).append(group)
    return [_table(groups, over, metrics, part) for groups in parts.values()]


def matching_rows(
    rows: Iterable[BenchRow],
    *,
    protocols: Sequence[str] = (),
    losses: Sequence[str] = (),
    backbones: Sequence[str] = (),
    folds: Sequence[int] = (),
    seeds: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[BenchRow]:
    """Return the rows that match every criterion; empty and None match all.

    ``options`` are training options; those that do not apply to a run are ignored.
    """
    return [
        row
        for row in rows
        if (not protocols or row.protocol in protocols)
        and (not losses or row.loss in losses)
        and (not backbones or row.backbone in backbones)
        and (not folds or row.fold in folds)
        and (seeds is None or row.seed < seeds)
        and (not options or has_options(with_options(TrainConfig(), row.options), options))
    ]


@dataclass(frozen=True)
class _Pair:
    """A group and the group it is compared with."""

    ours: Group
    theirs: Group

    def differences(self, metric: str, part: Part) -> list[float]:
        """Return ours minus theirs for each fold and seed that both have."""
        common = [member for member in self.ours.members if member in self.theirs.members]
        ours, theirs = (_values(it, metric, part) for it in (self.ours, self.theirs))
        return [ours[member] - theirs[member] for member in common]


def _table(
    groups: Sequence[Group], over: Sequence[Baseline], metrics: Sequence[str], part: Part | None
) -> Table:
    protocol, data_set, backbone = groups[0].key[:3]
    part = part or groups[0].protocol.evaluated_on
    groups = sorted(groups, key=_place)
    shared, column = set_apart([it.changed for it in groups])
    pairs = [[_pair(group, baseline, groups) for baseline in over] for group in groups]
    lines = []
    for group, options, found in zip(groups, column, pairs, strict=True):
        line = [loss_name(group.key[3]), method_name(group.key[4]), str(len(group.rows))]
        line += [_mean(_values(group, metric, part)) for metric in metrics]
        line += [_gain([it] if it else [], metric, part) for it in found for metric in metrics]
        lines.append(line + options)
    for method, of_each in _over_losses(groups, pairs).items():
        line = ["all", method_name(method), "", *("" for _ in metrics)]
        line += [_gain(several, metric, part) for several in of_each for metric in metrics]
        lines.append(line + ["" for _ in column[0]])
    header = ["loss", "method", "runs", *map(metric_name, metrics)]
    for baseline in over:
        name = method_name(baseline.label)
        header += [f"{metric_name(it)} over {name}" for it in metrics]
    header += ["set" for _ in column[0]]
    words = [caption_prefix(protocol, backbone), f"{data_set_name(data_set)}, {part} classes, %"]
    if over:
        words.append(
            "gains in points, paired by fold and seed, with 95 % intervals (ahead in so many pairs)"
        )
    return Table(header, lines, "; ".join([*words, *([shared] if shared else [])]) + ".")


def _mean(values: Mapping[Member, float]) -> str:
    """Format the mean in percent, with the spread over seeds if all runs have the same fold."""
    if len({member.fold for member in values}) == 1:
        return mean_and_spread(list(values.values()), 2, 100)
    return f"{100 * statistics.fmean(values.values()):.2f}"


def _values(group: Group, metric: str, part: Part) -> dict[Member, float]:
    """Return the metric of each run."""
    name = f"{part}.{metric}"
    for row in group.rows:
        if name not in row.metrics:
            known = sorted(it.removeprefix(f"{part}.") for it in row.metrics if it.startswith(part))
            raise StoreError(
                f"{group.name} has no {metric} of {part} classes, only {', '.join(known) or 'none'}"
            )
    return {member: row.metrics[name] for member, row in group.members.items()}


def _pair(group: Group, baseline: Baseline, groups: Sequence[Group]) -> _Pair | None:
    """Return ``group`` with the group it is compared with; None without one."""
    loss, method = _loss_and_method(group)

    def common(other: Group) -> int:
        own, others = without_folders(group.changed), without_folders(other.changed)
        if any(own.get(name) != others.get(name) for name in SAME):
            return 0
        return sum(member in other.members for member in group.members)

    there = [it for it in groups if baseline.has(it) and _loss_and_method(it)[0] == loss]
    found = [it for it in there if common(it)]
    # A method is compared with itself only if the baseline sets options.
    if not found or group in found or (method == baseline.label and not baseline.options):
        return None
    most = max(map(common, found))

    def rank(other: Group) -> tuple[bool, float]:
        return other.changed.get("weights") == group.changed.get("weights"), _validated(other)

    return _Pair(group, max((it for it in found if common(it) == most), key=rank))


def _validated(group: Group) -> float:
    """Return the mean validation score, by which settings are chosen."""
    values = [row.metrics.get(f"validation.{group.protocol.monitor}", 0.0) for row in group.rows]
    return statistics.fmean(values)


def _over_losses(
    groups: Sequence[Group], pairs: Sequence[Sequence[_Pair | None]]
) -> dict[str, list[list[_Pair]]]:
    """Return the pairs of all losses, for methods with several losses and one group for each."""
    found: dict[str, list[list[_Pair]]] = {}
    names = [_loss_and_method(group) for group in groups]
    for method in dict.fromkeys(method for _, method in names):
        losses = [loss for loss, name in names if name == method]
        own = [it for (_, name), it in zip(names, pairs, strict=True) if name == method]
        of_each = [[pair for pair in column if pair] for column in zip(*own, strict=True)]
        if 1 < len(losses) == len(set(losses)) and any(of_each):
            found[method] = of_each
    return found


def _loss_and_method(group: Group) -> tuple[tuple[str, bool], str]:
    """Return loss and method; cross-batch memory is part of the loss, which pairs must share."""
    method = Method.parse(group.key[4])
    return (group.key[3], method.xbm), str(replace(method, xbm=False))


def _gain(pairs: Sequence[_Pair], metric: str, part: Part) -> str:
    """Format the mean gain, half its interval's width, and in how many pairs ours is ahead."""
    differences = np.array([it for pair in pairs for it in pair.differences(metric, part)])
    if not len(differences):
        return ""
    found = t_interval(differences, CONFIDENCE)
    reach = "" if found is None else f" ± {100 * (found[2] - found[0]):.2f}"
    ahead = f"{int((differences > 0).sum())}/{len(differences)}"
    return f"{signed(float(differences.mean()))}{reach} ({ahead})"


def _place(group: Group) -> tuple[object, ...]:
    return loss_place(group.key[3]), method_place(group.key[4]), group.settings
