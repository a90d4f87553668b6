"""Whether runs can be compared, and what differs between them besides the scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sumpool.report.run.files import Run
from sumpool.report.run.folder import EVALUATION
from sumpool.report.run.groups import IGNORED_OPTIONS, seed_of
from sumpool.report.run.option_names import flatten
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError

#: Facts of a run that are compared in addition to its options.
FACTS = ("data_set", "images", "classes", "left_out", "device", "versions")


def check_comparable(groups: Mapping[str, Sequence[Run]], source: str) -> list[str]:
    """Refuse runs whose scores were measured on different images.

    All must have been tested on the same images. Validation images may depend on the seed: each
    group must share a validation set with the first.

    Args:
        groups: Runs by the name of their group.
        source: The evaluation that is compared, "test" or "validation".

    Returns:
        Notes for the reader.

    Raises:
        StoreError: If they cannot be compared; the message names two runs.
    """
    notes: dict[str, None] = {}
    for identity in (evaluated_images, _image_counts):
        known = [
            (group, run, images)
            for group, runs in groups.items()
            for run in runs
            if (images := identity(run, source)) is not None
        ]
        own = {group: {images for of, _, images in known if of == group} for group in groups}
        for group, run, images in known:
            first_group, first, others = known[0]
            apart = images != others if source == "test" else not own[group] & own[first_group]
            if apart:
                raise StoreError(
                    f"{first.folder} and {run.folder} cannot be compared: they were evaluated on "
                    f"different {source} images; compare runs on the same data, fold and seed"
                )
            if own[group] != own[first_group]:
                notes[f"Some runs were evaluated on other {source} images than the rest."] = None
    return list(notes)


def evaluated_images(run: Run, source: str) -> str | None:
    """Return a digest of names and labels of the evaluated images; None if they are unknown.

    Raises:
        StoreError: If a list of images is damaged.
    """
    digest = hashlib.sha256()
    folder = run.folder / EVALUATION / source
    lists = sorted(folder.glob("*items.json"))
    for path in lists:  # queries and, if separate, the gallery
        labels = path.with_name(path.name.replace("items.json", "labels.npy"))
        try:
            names = relative_names(load_json(path)["names"])
            values = np.load(labels, allow_pickle=False)
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}, or {labels.name} beside it, is damaged: {error}") from error
        digest.update(json.dumps([path.name, names, values.tolist()]).encode())
    return digest.hexdigest() if lists else None


def _image_counts(run: Run, source: str) -> str | None:
    counts = [(run.facts.get(name) or {}).get(source) for name in ("images", "classes")]
    return None if None in counts else str(counts)


def relative_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of images without their common folder, which may differ between machines."""
    folders = [name.split("/")[:-1] for name in names]
    same = 0
    for one, other in zip(min(folders), max(folders), strict=False):
        if one != other:
            break
        same += 1
    return tuple(name.split("/", same)[-1] for name in names)


def difference_table(groups: Mapping[str, Sequence[Run]]) -> Table:
    """Tabulate the options, seeds and facts in which groups differ, one row each."""
    found = {group: [_settings(run) for run in runs] for group, runs in groups.items()}
    names = dict.fromkeys(name for runs in found.values() for run in runs for name in run)
    rows = []
    for name in names:
        cells = [
            ", ".join(dict.fromkeys(_text(run.get(name)) for run in runs))
            for runs in found.values()
        ]
        if len(set(cells)) > 1:
            rows.append([name, *cells])
    caption = (
        "Settings and data in which the groups differ"
        if rows
        else "The groups do not differ in settings or data"
    )
    return Table(("setting", *groups), rows, caption)


def _settings(run: Run) -> dict[str, Any]:
    options = {k: v for k, v in flatten(run.config).items() if k not in IGNORED_OPTIONS}
    facts = flatten({name: run.facts[name] for name in FACTS if run.facts.get(name)})
    return {**options, **facts, "seed": seed_of(run)}


def _text(value: Any) -> str:
    return NOTHING if value is None else value if isinstance(value, str) else json.dumps(value)
