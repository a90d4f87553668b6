"""Score a benchmark: combine the rows of each complete group under its protocol."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sumpool.bench.groups import Group, find_groups
from sumpool.bench.methods import baselines
from sumpool.bench.planned_cells import read_grid
from sumpool.bench.report.scores import SCORES, Gain, Incomplete, Score, read_scores, write_scores
from sumpool.bench.store.store import BenchStore
from sumpool.protocols import Combined, MemberResult, ProtocolError, combine, gains_between
from sumpool.protocols.combining import score_note
from sumpool.protocols.run_results import ImageList, read_image_lists, sorted_members
from sumpool.system.files import StoreError, write_atomic

T = TypeVar("T")

#: Folder of results computed from embeddings, one file per group.
COMBINED = "combined"

#: Prefixes of the arrays of queries and gallery in these files.
_PARTS = ("query", "gallery")


@dataclass(frozen=True)
class Scored:
    """Result of :func:`score_store`.

    Attributes:
        scores: Scores of the complete groups.
        gains: Gains of methods over simpler ones.
        incomplete: Groups with missing runs, which have no score.
        warnings: Why groups have no score or gain: missing folds and seeds, missing files.
    """

    scores: list[Score]
    gains: list[Gain]
    incomplete: list[Incomplete]
    warnings: list[str]


@dataclass(frozen=True)
class _ScoredGroup:
    """A group with scores."""

    group: Group
    combined: Combined | None  # needed for gains; None if it is lost
    before: bool  # whether scores.json has scores of the same runs


def score_store(store: BenchStore, *, device: str | None = None, progress: bool = False) -> Scored:
    """Score the complete groups of ``store``, and write ``scores.json`` to its folder.

    A group that lacks a fold or a seed gets no score. Results computed from embeddings are stored
    until runs are added to the group, so the embeddings may be removed. If the stored results are
    missing or damaged as well, the scores and gains of the same runs in ``scores.json`` are kept.

    Args:
        store: The benchmark.
        device: Device on which embeddings are compared; None for a GPU if available.
        progress: Whether to show progress bars.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    found = Scored([], [], [], [])
    old_scores, old_gains = _scores_before(store)
    summed: list[_ScoredGroup] = []
    for group in find_groups(store.rows(), read_grid(store)):
        if group.missing:
            done = len(group.wanted) - len(group.missing)
            found.incomplete.append(
                Incomplete(*group.key, done, len(group.wanted), _set_note(group))
            )
            listed = "; ".join(map(str, group.missing))
            found.warnings.append(f"{group.name}: no score without {listed}")
            continue
        path = store.folder / COMBINED / f"{group.digest}.npz"
        # Rows never change, and the note says how many there are: these are of the same runs.
        old = [it for it in old_scores if _is_of(it, group)]
        combined = None
        try:
            combined = _combined(path, group, _results(store, group), device, progress)
            scores = _scores(group, combined)
        except ProtocolError as error:
            scores = [it for it in old if it not in found.scores]
            what = "its scores are those of before" if scores else "no score"
            found.warnings.append(f"{group.name}: {what}: {error}")
        if scores:
            found.scores.extend(scores)
            summed.append(_ScoredGroup(group, combined, bool(old)))
    for ours in summed:
        for label in baselines(ours.group.key[-1]):
            key = (*ours.group.key[:-1], label)
            alike = [
                it for it in summed if it.group.key == key and ours.group.is_trained_as(it.group)
            ]
            if alike:
                same = [it for it in alike if it.group.changed == ours.group.changed]
                _add_gains(found, ours, label, (same or alike)[0], old_gains)
    write_scores(store.folder / SCORES, found.scores, found.gains, found.incomplete)
    return found


def _scores_before(store: BenchStore) -> tuple[list[Score], list[Gain]]:
    try:
        return read_scores(store.folder / SCORES)[:2]
    except StoreError:  # missing or unreadable
        return [], []


def _is_of(entry: Score | Gain, group: Group) -> bool:
    note = _score_note(group) if isinstance(entry, Score) else _set_note(group)
    return (entry.key, entry.note) == (group.key, note)


def _set_note(group: Group) -> str:
    return f"set {group.settings}" if group.settings else ""


def _score_note(group: Group) -> str:
    notes = [score_note(group.protocol, len(group.wanted)), _set_note(group)]
    if group.seeds != group.protocol.seeds:
        notes.append(f"{group.seeds} and not {group.protocol.seeds} seeds")
    return "; ".join(filter(None, notes))


def _scores(group: Group, combined: Combined) -> list[Score]:
    note = _score_note(group)
    return [
        Score(*group.key, it.dimension, it.metric, it.mean, it.std, it.count, note)
        for it in combined.scores()
    ]


def _add_gains(
    found: Scored, ours: _ScoredGroup, against: str, theirs: _ScoredGroup, old: Sequence[Gain]
) -> None:
    group = ours.group
    if ours.combined is None or theirs.combined is None:
        if ours.before and theirs.before:
            found.gains.extend(it for it in old if it.against == against and _is_of(it, group))
        return
    try:
        gains = gains_between(ours.combined, theirs.combined)
    except ProtocolError as error:
        found.warnings.append(f"{group.name}: no gain over {against}: {error}")
        return
    note = _set_note(group)
    found.gains.extend(Gain(*group.key, against, **asdict(it), note=note) for it in gains)


def _results(store: BenchStore, group: Group) -> list[MemberResult]:
    start = f"{group.protocol.evaluated_on}."
    return [
        MemberResult(
            member,
            store.folder / group.members[member].folder,
            _starting_with(start, group.members[member].metrics),
        )
        for member in group.wanted
    ]


def _combined(
    path: Path, group: Group, results: Sequence[MemberResult], device: str, progress: bool
) -> Combined:
    """Load the combined runs of a group from ``path``, or compute and store them."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            arrays = dict(kept)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # Missing or damaged.
        found = combine(
            group.protocol, results, seeds=group.seeds, progress=progress, device=device
        )
    else:
        found = _restored(group, results, arrays)
        if _lists_in(arrays) is not None:
            return found
    _keep(path, found)
    return found


def _keep(path: Path, combined: Combined) -> None:
    """Store the parts of ``combined`` that cannot be derived from the rows."""
    arrays: dict[str, NDArray[Any]] = {"dimension": np.array(combined.dimension)}
    arrays |= {f"single.{name}": values for name, values in combined.single.items()}
    arrays |= {f"joined.{name}": values for name, values in (combined.concatenated or {}).items()}
    for part, images in zip(_PARTS, combined.images, strict=True):
        if images is not None:
            arrays[f"{part}.labels"] = images.labels
            arrays[f"{part}.names"] = np.array(images.names, dtype=np.str_)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomic(path, buffer.getvalue())


def _restored(
    group: Group, results: Sequence[MemberResult], kept: Mapping[str, NDArray[Any]]
) -> Combined:
    members = sorted_members(group.protocol, results, group.seeds)
    return Combined(
        group.protocol,
        members,
        # Files of earlier versions do not list their images.
        _lists_in(kept) or read_image_lists(members[0], group.protocol.evaluated_on),
        int(kept["dimension"]),
        _starting_with("single.", kept),
        _starting_with("joined.", kept) or None,
    )


def _starting_with(start: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return the values whose names begin with ``start``, by the rest of their names."""
    return {name.removeprefix(start): it for name, it in values.items() if name.startswith(start)}


def _lists_in(kept: Mapping[str, NDArray[Any]]) -> tuple[ImageList, ImageList | None] | None:
    def listed(part: str) -> ImageList | None:
        if f"{part}.labels" not in kept:
            return None
        return ImageList(kept[f"{part}.labels"], tuple(kept[f"{part}.names"].tolist()))

    query, gallery = map(listed, _PARTS)
    return None if query is None else (query, gallery)
