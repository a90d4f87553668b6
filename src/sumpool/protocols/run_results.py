"""Results of a finished run: its metrics, and its embeddings, which are read on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.protocols.errors import MissingMemberError, ProtocolError
from sumpool.protocols.protocol import Member, Protocol
from sumpool.report.run.comparability import relative_names
from sumpool.report.run.folder import DIGESTS, EVALUATION, METRICS
from sumpool.report.run.metric_values import check_metrics
from sumpool.system.digests import check_digests
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError

#: File name prefixes of queries and gallery.
PARTS = ("", "gallery-")
#: Files of each: labels and names of the images, and their embeddings.
LISTS, EMBEDDINGS = ("labels.npy", "items.json"), "embeddings.npy"


@dataclass(frozen=True)
class MemberResult:
    """A finished run of a protocol.

    Attributes:
        member: Its fold and seed.
        folder: The run folder.
        metrics: Metrics of the evaluation that the protocol scores, by name.
    """

    member: Member
    folder: Path
    metrics: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ImageList:
    """The images of an evaluation.

    Attributes:
        labels: Their classes, (N,).
        names: Their names, relative to their common folder.
    """

    labels: NDArray[np.int64]
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Images(ImageList):
    """The images of an evaluation with their embeddings.

    Attributes:
        vectors: The embeddings (N, d), memory-mapped.
    """

    vectors: NDArray[np.floating[Any]]


def read_member(protocol: Protocol, member: Member, folder: Path) -> MemberResult:
    """Read a run of ``protocol`` from its run folder.

    Raises:
        ProtocolError: If the evaluation that the protocol scores is missing or damaged.
    """
    path = Path(folder) / EVALUATION / protocol.evaluated_on / METRICS
    try:
        check_digests(Path(folder), DIGESTS, (f"{EVALUATION}/{protocol.evaluated_on}",))
        metrics = load_json(path)
        check_metrics(metrics)
    except (OSError, ValueError, AttributeError, StoreError) as error:
        raise ProtocolError(f"{member}: {path} cannot be read: {error}") from error
    return MemberResult(member, Path(folder), metrics)


def sorted_members(
    protocol: Protocol, results: Sequence[MemberResult], seeds: int | None
) -> list[MemberResult]:
    """Return ``results`` in the order of the protocol's members, each exactly once.

    Raises:
        MissingMemberError: If members are missing; names each.
        ProtocolError: If a member occurs twice or is not part of the protocol.
    """
    wanted = protocol.members(seeds)
    found: dict[Member, MemberResult] = {}
    for it in results:
        if it.member not in wanted:
            listed = "; ".join(map(str, wanted))
            raise ProtocolError(
                f"{it.folder}: {it.member} is not part of the {protocol.name} protocol: {listed}"
            )
        if it.member in found:
            raise ProtocolError(
                f"{it.member} is there twice: {found[it.member].folder} and {it.folder}"
            )
        found[it.member] = it
    missing = [member for member in wanted if member not in found]
    if missing:
        listed = "; ".join(map(str, missing))
        raise MissingMemberError(
            f"{len(missing)} of the {len(wanted)} runs of the {protocol.name} protocol are "
            f"missing: {listed}"
        )
    return [found[member] for member in wanted]


def read_images(member: MemberResult, evaluation: str) -> tuple[Images, Images | None]:
    """Read queries and gallery; the gallery is None if queries are searched among themselves.

    Raises:
        ProtocolError: If a file is missing or damaged; names it.
    """
    folder = member.folder / EVALUATION / evaluation
    query = _read(folder, PARTS[0])
    return query, _read(folder, PARTS[1]) if _has_gallery(folder) else None


def read_image_lists(member: MemberResult, evaluation: str) -> tuple[ImageList, ImageList | None]:
    """Like :func:`read_images`, but without the embeddings, which may be missing.

    Raises:
        ProtocolError: If a file is missing or damaged; names it.
    """
    folder = member.folder / EVALUATION / evaluation
    query = _read_list(folder, PARTS[0])
    return query, _read_list(folder, PARTS[1]) if _has_gallery(folder) else None


def check_same_images(
    first: MemberResult,
    images: tuple[ImageList, ImageList | None],
    other: MemberResult,
    others: tuple[ImageList, ImageList | None],
) -> None:
    """Raise :class:`ProtocolError` unless two runs were evaluated on the same images."""
    for part, one, two in zip(("images", "gallery"), images, others, strict=True):
        why = _difference(one, two)
        if why:
            raise ProtocolError(
                f"{other.folder} ({other.member}) was evaluated on other {part} than "
                f"{first.folder} ({first.member}): {why}"
            )


def _difference(one: ImageList | None, two: ImageList | None) -> str:
    if one is None or two is None:
        return "" if one is two else "only one of them has a gallery of its own"
    if len(one.labels) != len(two.labels):
        return f"{len(two.labels)} and not {len(one.labels)}"
    if not np.array_equal(one.labels, two.labels):
        place = int(np.flatnonzero(one.labels != two.labels)[0])
        return f"image {place} is of class {two.labels[place]} and not {one.labels[place]}"
    if one.names != two.names:
        pairs = zip(one.names, two.names, strict=True)
        place = next(at for at, (a, b) in enumerate(pairs) if a != b)
        return f"image {place} is {two.names[place]} and not {one.names[place]}"
    return ""


def _has_gallery(folder: Path) -> bool:
    # Any file counts: a gallery that lost its embeddings must not be taken for no gallery.
    return any((folder / f"{PARTS[1]}{name}").exists() for name in (*LISTS, EMBEDDINGS))


def _read(folder: Path, prefix: str) -> Images:
    listed = _read_list(folder, prefix)
    path = folder / f"{prefix}{EMBEDDINGS}"
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ProtocolError(f"{path} cannot be read: {error}") from error
    if vectors.ndim != 2 or len(vectors) != len(listed.labels):
        raise ProtocolError(
            f"{folder} is damaged: {len(listed.labels)} labels, {len(listed.names)} names and "
            f"embeddings of shape {vectors.shape}"
        )
    return Images(listed.labels, listed.names, vectors)


def _read_list(folder: Path, prefix: str) -> ImageList:
    path, items = (folder / f"{prefix}{name}" for name in LISTS)
    try:
        labels = np.load(path, allow_pickle=False)
        path = items
        names = load_json(path)["names"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"{path} cannot be read: {error}") from error
    if len(labels) != len(names):
        raise ProtocolError(f"{folder} is damaged: {len(labels)} labels, {len(names)} names")
    return ImageList(labels, relative_names(names))
