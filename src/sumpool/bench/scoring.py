"""From the rows of a benchmark to its scores: complete groups, as their protocol sums them up."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sumpool.bench.grid_file import read_grid
from sumpool.bench.groups import Group, find_groups
from sumpool.bench.store import BenchStore
from sumpool.protocols import Combined, JudgedMember, ProtocolError, combine, gains_between
from sumpool.protocols.judged import read_images, sorted_members
from sumpool.report.scores import SCORES, Gain, Incomplete, Score, write_scores
from sumpool.report.whole_files import write_whole

#: Folder of what was computed from embeddings, by group.
COMBINED = "combined"


@dataclass(frozen=True)
class Scored:
    """What :func:`score_store` found.

    Attributes:
        scores: Scores of the complete groups.
        gains: What methods have over simpler ones.
        incomplete: Groups that lack trainings; they have no score.
        troubles: What keeps groups from a score or a gain, in words: missing folds and seeds by
            name, files that are gone.
    """

    scores: list[Score]
    gains: list[Gain]
    incomplete: list[Incomplete]
    troubles: list[str]


def score_store(store: BenchStore, *, device: str | None = None, progress: bool = False) -> Scored:
    """Sum up the complete groups of ``store``, and write ``scores.json`` there.

    A group that lacks a fold or a seed gets no score. What is computed from embeddings is kept, and
    computed again only when trainings are added to the group.

    Args:
        store: The benchmark.
        device: Where embeddings are compared; None is a GPU where there is one.
        progress: Whether to show progress bars.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    groups = find_groups(store.rows(), read_grid(store))
    found = Scored([], [], [], [])
    combined: dict[tuple[str, ...], tuple[Group, Combined]] = {}
    for group in groups:
        if group.missing:
            done = len(group.wanted) - len(group.missing)
            found.incomplete.append(Incomplete(*group.key, done, len(group.wanted)))
            listed = "; ".join(map(str, group.missing))
            found.troubles.append(f"{group.name}: no score without {listed}")
            continue
        try:
            result = _combined(store, group, device, progress)
        except ProtocolError as error:
            found.troubles.append(f"{group.name}: no score: {error}")
            continue
        found.scores.extend(_scores(group, result))
        combined[*group.key, group.settings] = group, result
    for group, result in combined.values():
        for label in group.baselines():
            other = combined.get((*group.key[:-1], label, group.settings))
            if other is not None:
                _add_gains(found, group, result, label, other[1])
    write_scores(store.folder / SCORES, found.scores, found.gains, found.incomplete)
    return found


def _scores(group: Group, combined: Combined) -> list[Score]:
    notes = [f"set {group.settings}"] if group.settings else []
    if group.seeds != group.protocol.seeds:
        notes.append(f"{group.seeds} and not {group.protocol.seeds} seeds")
    return [
        Score(
            *group.key,
            it.dimension,
            it.metric,
            it.mean,
            it.std,
            it.count,
            "; ".join([*([it.note] if it.note else []), *notes]),
        )
        for it in combined.scores()
    ]


def _add_gains(found: Scored, group: Group, ours: Combined, against: str, theirs: Combined) -> None:
    try:
        gains = gains_between(ours, theirs)
    except ProtocolError as error:
        found.troubles.append(f"{group.name}: no gain over {against}: {error}")
        return
    found.gains.extend(
        Gain(
            *group.key,
            against,
            it.dimension,
            it.metric,
            it.mean,
            it.low,
            it.high,
            it.count,
            it.confidence,
            f"set {group.settings}" if group.settings else "",
        )
        for it in gains
    )


def _judged(store: BenchStore, group: Group) -> list[JudgedMember]:
    start = f"{group.protocol.judged_on}."
    return [
        JudgedMember(
            member,
            store.folder / group.members[member].folder,
            {
                name.removeprefix(start): value
                for name, value in group.members[member].metrics.items()
                if name.startswith(start)
            },
        )
        for member in group.wanted
    ]


def _combined(store: BenchStore, group: Group, device: str, progress: bool) -> Combined:
    """What scores and gains are computed from: as it was kept, or anew."""
    judged = _judged(store, group)
    path = store.folder / COMBINED / f"{group.digest}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            return _restored(group, judged, dict(kept))
    found = combine(group.protocol, judged, seeds=group.seeds, progress=progress, device=device)
    arrays = {f"single.{name}": values for name, values in found.single.items()}
    arrays |= {f"joined.{name}": values for name, values in (found.joined or {}).items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, dimension=np.array(found.dimension), **arrays)
    write_whole(path, buffer.getvalue())
    return found


def _restored(
    group: Group, judged: Sequence[JudgedMember], kept: dict[str, np.ndarray]
) -> Combined:
    def named(start: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(start): values
            for name, values in kept.items()
            if name.startswith(start)
        }

    members = sorted_members(group.protocol, judged, group.seeds)
    return Combined(
        group.protocol,
        members,
        read_images(members[0], group.protocol.judged_on),
        int(kept["dimension"]),
        named("single."),
        named("joined.") or None,
    )
