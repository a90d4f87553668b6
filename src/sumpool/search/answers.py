"""Answers to queries, as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sumpool.search.duplicates import Duplicates
from sumpool.search.images import Match
from sumpool.search.index import Index
from sumpool.search.queries import Embedded, QueryError
from sumpool.search.threshold import Threshold
from sumpool.system.wording import counted, on_one_line


@dataclass(frozen=True)
class Answer:
    """The results of one query.

    Attributes:
        query: The query as given.
        matches: The results, most similar first.
        threshold: Similarity at which images count as similar; None for prototypes.
        embedded: The embedded query; None if its vector is stored, and for prototypes.
    """

    query: str
    matches: list[Match]
    threshold: Threshold | None = None
    embedded: Embedded | None = None

    @property
    def verdict(self) -> str:
        """One-sentence summary of how many images are similar."""
        if self.threshold is None:
            return "Ordered by the share of the image that goes to the prototype."
        return verdict(self.matches, self.threshold, self.threshold.value)


def verdict(matches: Sequence[Match], threshold: Threshold, least: float | None = None) -> str:
    """One-sentence summary of how many ``matches`` are similar.

    Args:
        matches: The results, most similar first.
        threshold: Similarity at which images count as similar.
        least: Similarity that the results were limited to, if any.
    """
    value, meaning = threshold
    if not matches:
        return "Nothing was found." if least is None else f"Nothing is at least {least:g} similar."
    similar = sum(it.similarity >= value for it in matches)
    if not similar:
        nearest = f"Nothing is similar enough: the nearest image has {matches[0].similarity:.3f}"
        return f"{nearest}, the threshold is {value:.3f} ({meaning})."
    number = f"{similar} of {counted(len(matches), 'image')}"
    return f"{number} at or above the threshold {value:.3f} ({meaning})."


def answer(
    index: Index,
    query: str,
    k: int,
    *,
    where: Mapping[str, Sequence[str]] | None = None,
    box: Sequence[float] | None = None,
    threshold: float | None = None,
    embed: bool = False,
) -> Answer:
    """Answer a typed query: an image file, or the id or path of an indexed image.

    Args:
        index: The index.
        query: The query.
        k: Maximum number of results.
        where: As in :meth:`Index.search`.
        box: As in :meth:`Index.search`.
        threshold: Minimum similarity; None accepts any.
        embed: Whether to embed indexed images too, as pages require.
    """
    source = find_query(index, query)
    stored = isinstance(source, int) and box is None
    embedded = None if stored and not embed else index.embed(source, box)
    searched = source if stored or embedded is None else embedded
    matches = index.search(searched, k, where=where, threshold=threshold)
    stated = Threshold(threshold, "as given") if threshold is not None else index.threshold
    return Answer(query, matches, stated, embedded)


def answer_prototype(index: Index, prototype: int, k: int) -> Answer:
    """Answer with the images in which a prototype is strongest."""
    return Answer(f"prototype {prototype}", index.search_prototype(prototype, k))


def find_query(index: Index, query: str) -> Path | int:
    """Resolve ``query`` to a file or an image id; files take precedence.

    Raises:
        QueryError: If it is neither.
    """
    if Path(query).is_file():
        return Path(query)
    if query.isdecimal():
        index.row(int(query))
        return int(query)
    paths = index.images["path"].to_pylist()
    if query in paths:
        return int(index.images["id"][paths.index(query)].as_py())
    raise QueryError(f"QUERY must be an image file, or the id or path of an indexed image: {query}")


def as_text(answer: Answer) -> str:
    """Format an answer as a table, followed by its verdict."""
    rows = [
        (f"{it.similarity:.3f}", str(it.id), on_one_line(it.label or ""), on_one_line(it.path))
        for it in answer.matches
    ]
    header = ("similarity" if answer.threshold else "share", "id", "label", "path")
    labeled = any(row[2] for row in rows)
    kept = [0, 1, 2, 3] if labeled else [0, 1, 3]
    widths = [max(len(row[it]) for row in (header, *rows)) for it in kept]
    lines = [
        "  ".join(row[it].ljust(width) for it, width in zip(kept, widths, strict=True)).rstrip()
        for row in ((header, *rows) if rows else ())
    ]
    return "\n".join([on_one_line(answer.query), *lines, answer.verdict])


def as_json(answers: Sequence[Answer]) -> str:
    """Format answers as JSON."""
    return json.dumps([_values(it) for it in answers], indent=1, ensure_ascii=False)


def _values(answer: Answer) -> dict[str, Any]:
    values: dict[str, Any] = {"query": answer.query, "verdict": answer.verdict}
    if answer.threshold is not None:
        values["threshold"] = answer.threshold._asdict()
    return values | {"matches": [it._asdict() for it in answer.matches]}


def as_csv(answers: Sequence[Answer]) -> str:
    """Format answers as CSV, one line per result."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("query", "rank", "id", "path", "label", "similarity"))
    for it in answers:
        for rank, match in enumerate(it.matches, 1):
            writer.writerow(
                (it.query, rank, match.id, match.path, match.label or "", match.similarity)
            )
    return out.getvalue()


def duplicates_text(index: Index, groups: Sequence[Duplicates], threshold: float) -> str:
    """Format groups of duplicates as text, one image per line."""
    lines = []
    for group in groups:
        kind = "same content" if group.exact else f"near, {group.similarity:.3f}"
        lines += [kind, *(f"  {id}  {on_one_line(index.match(id).path)}" for id in group.ids)]
    return "\n".join([*lines, duplicates_verdict(groups, threshold)])


def duplicates_verdict(groups: Sequence[Duplicates], threshold: float) -> str:
    """One-sentence summary of the number of groups."""
    exact = sum(it.exact for it in groups)
    near = len(groups) - exact
    return (
        f"{counted(exact, 'group')} with the same content, {counted(near, 'group')} of "
        f"near-duplicates (similarity at least {threshold:g})."
    )


def duplicates_json(index: Index, groups: Sequence[Duplicates]) -> str:
    """Format groups of duplicates as JSON."""
    values = [
        {
            "exact": it.exact,
            "similarity": it.similarity,
            "images": [
                {"id": id, "path": index.match(id).path, "label": index.match(id).label}
                for id in it.ids
            ],
        }
        for it in groups
    ]
    return json.dumps(values, indent=1, ensure_ascii=False)
