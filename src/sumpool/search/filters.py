"""Filters that restrict the results of a search."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from sumpool.search.queries import QueryError


def accepted_labels(
    where: Mapping[str, str | Sequence[str]] | None, labels: Sequence[str]
) -> set[str] | None:
    """Return the labels that ``where`` accepts; None for all images.

    Args:
        where: One or several labels under the key "label"; None or empty accepts all.
        labels: All labels of the index.

    Raises:
        QueryError: If a key or a label is unknown; the message suggests similar labels.

    Example:
        >>> accepted_labels({"label": "cat"}, ["cat", "dog"])
        {'cat'}
    """
    if not where:
        return None
    unknown = [key for key in where if key != "label"]
    if unknown:
        raise QueryError(f"where must be label=NAME, got {unknown[0]!r}")
    if not labels:
        raise QueryError("where needs labels, and the images of this index have none")
    value = where["label"]
    wanted = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if strange := [it for it in wanted if not isinstance(it, str)]:
        raise QueryError(f"where must name labels, which are strings, got {strange[0]!r}")
    for label in wanted:
        if label not in labels:
            close = difflib.get_close_matches(label, labels, 3, 0.4) or list(labels[:3])
            raise QueryError(f"no image has the label {label!r}; there are {', '.join(close)}, …")
    return set(wanted)
