"""The page that compares groups of runs."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from sumpool.report.html_page import write_page
from sumpool.report.overlays import overlay, scale_stops, scale_top
from sumpool.report.run.comparability import check_comparable, difference_table
from sumpool.report.run.curves import comparison_pictures, score_picture
from sumpool.report.run.files import Run, read_run
from sumpool.report.run.folder import REPORT
from sumpool.report.run.gallery import Gallery, Query
from sumpool.report.run.groups import seed_of
from sumpool.report.run.labels import ON_TEST, PERCENT, SCORES, duration, seconds_of, summary
from sumpool.report.run.weight_maps import is_flat
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.files import StoreError

#: Labels of the reasons why runs stop, in the table of runs.
ENDINGS = {"max_steps": "last step", "minutes": "time budget"}
#: Maximum number of images whose weights are compared.
IMAGES = 12


def write_comparison_page(
    groups: Mapping[str, Sequence[Path]], out: Path, title: str, notes: Sequence[str] = ()
) -> Path:
    """Write a page that compares groups of runs.

    Args:
        groups: Folders of runs by the name of their group, the baseline first.
        out: Path of the page.
        title: Heading of the page.
        notes: Paragraphs below the heading: what is compared, and under which conditions.

    Returns:
        ``out``.

    Raises:
        StoreError: If there is nothing to compare, a folder holds no run, or the runs were
            evaluated on different images.
    """
    read, source, found = _read(groups)
    scores = {
        label: {group: _values(runs, source, metric) for group, runs in read.items()}
        for metric, label in SCORES.items()
    }
    anything = any(values for own in scores.values() for values in own.values())
    return write_page(
        out,
        "comparison.html",
        title=title,
        notes=[*notes, *found],
        table=_table(read, source),
        differences=_differences(read, source),
        settings=difference_table(read),
        scores=[score_picture(label, source, own) for label, own in scores.items() if anything],
        curves=comparison_pictures(read),
        weights=_weights(read),
        runs=_runs(read, source, out),
    )


def comparison_table(groups: Mapping[str, Sequence[Path]]) -> Table:
    """Return a table of each group's mean ± standard deviation, on the test set if there is one."""
    read, source, _ = _read(groups)
    return _table(read, source)


def _read(groups: Mapping[str, Sequence[Path]]) -> tuple[dict[str, list[Run]], str, list[str]]:
    """Return the runs, the evaluation to compare them on, and notes on their comparability."""
    if not groups or not all(groups.values()):
        raise StoreError(f"each group must hold a run, got {dict(groups)}")
    read = {name: [read_run(folder) for folder in folders] for name, folders in groups.items()}
    tested = any("test" in run.evaluations for runs in read.values() for run in runs)
    source = "test" if tested else "validation"
    return read, source, check_comparable(read, source)


def _values(runs: Sequence[Run], source: str, metric: str) -> list[float]:
    found = [(run.scores(source) or {}).get(metric) for run in runs]
    return [value for value in found if value is not None and math.isfinite(value)]


def _table(read: Mapping[str, Sequence[Run]], source: str) -> Table:
    rows = []
    for group, runs in read.items():
        cells = []
        for metric in PERCENT:
            values = _values(runs, source, metric)
            cells.append(mean_and_spread(values, 1, 100) if values else NOTHING)
        done = len(_values(runs, source, "mean_average_precision_at_r"))
        count = str(done) if done == len(runs) else f"{done} of {len(runs)}"
        mark = " †" if any(run.selection == "test" for run in runs) else ""
        rows.append([group + mark, count, *cells])
    over = "mean ± standard deviation over the runs of a group"
    if any(run.selection == "test" for runs in read.values() for run in runs):
        over += f"; groups marked † were {ON_TEST}"
    return Table(("group", "runs", *PERCENT.values()), rows, f"Scores on the {source} set, {over}")


def _differences(read: Mapping[str, Sequence[Run]], source: str) -> list[str]:
    """Sentences that compare each group with the first."""
    (first, base), *others = read.items()
    lines = []
    for metric, label in SCORES.items():
        own = [100 * value for value in _values(base, source, metric)]
        for group, runs in others:
            values = [100 * value for value in _values(runs, source, metric)]
            if not own or not values:
                continue
            gap = statistics.fmean(values) - statistics.fmean(own)
            line = f"{group} − {first} in {label}: {gap:+.1f} points"
            if min(len(own), len(values)) > 1:
                spread = statistics.stdev(values) + statistics.stdev(own)
                line += f"; their standard deviations add up to {spread:.1f}"
            lines.append(line + ".")
    return lines


def _weights(read: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Weights of the same images in each group's first run that has weights."""
    chosen = {
        group: next((run for run in runs if run.gallery and run.gallery.weights), None)
        for group, runs in read.items()
    }
    shown = {group: run for group, run in chosen.items() if run is not None}
    lacking = ", ".join(group for group in read if group not in shown)
    missing = [f"No weights were collected for {lacking}."] if lacking else []
    maps = {group: _maps(run.gallery) for group, run in shown.items() if run.gallery}
    if not maps:
        return {"sets": [], "missing": missing}
    first = next(iter(maps.values()))
    items = [item for item in first if all(item in own for own in maps.values())][:IMAGES]
    if not items:
        return {"sets": [], "missing": [*missing, "The groups were shown different images."]}
    top = scale_top(own[item][2] for own in maps.values() for item in items)
    flat = [group for group, own in maps.items() if is_flat(own[item][2] for item in items)]
    return {
        "groups": list(maps),
        "seeds": ", ".join(f"{group} seed {seed_of(run)}" for group, run in shown.items()),
        "flat": ", ".join(flat),
        "scale": {"top": top, "stops": scale_stops()},
        "sets": [
            {
                "query": first[item][0],
                "jpeg": first[item][1],
                "heats": {group: overlay(*own[item][1:], top) for group, own in maps.items()},
            }
            for item in items
        ],
        "missing": missing,
    }


def _maps(gallery: Gallery) -> dict[str, tuple[Query, bytes, NDArray[np.float32]]]:
    """Query, thumbnail and weights of the images drawn at random, by name of the image."""
    return {
        query.item: (query, gallery.images[query.image], gallery.weights[query.image])
        for query in gallery.sample
        if query.image in gallery.weights
    }


def _runs(read: Mapping[str, Sequence[Run]], source: str, out: Path) -> dict[str, Any]:
    """One row per run, with a link to its page if it exists."""
    labels = [f"{label} [%]" for label in SCORES.values()]
    rows, notes = [], []
    for group, runs in read.items():
        notes.append(f"First run of {group}: {summary(runs[0])}")
        for run in runs:
            page = run.folder / REPORT
            # Relative, because the folder may be moved or sent as a whole.
            link = quote(Path(os.path.relpath(page, out.parent)).as_posix())
            name = f"{group}, seed {seed_of(run)}"
            rows.append((name, link if page.is_file() else None, _run_cells(run, source)))
    header = ("run", *labels, "best step", "steps", "time", "stopped")
    return {"header": header, "rows": rows, "notes": notes}


def _run_cells(run: Run, source: str) -> list[str]:
    scores = run.scores(source) or {}
    seconds = seconds_of(run)
    steps = run.facts.get("steps") or (int(run.log["step"][-1]) if "step" in run.log else None)
    stopped = run.facts.get("stopped")
    return [
        *(f"{100 * scores[metric]:.1f}" if metric in scores else NOTHING for metric in SCORES),
        *(NOTHING if number is None else f"{number:,}" for number in (run.best_step, steps)),
        NOTHING if seconds is None else duration(seconds),
        ENDINGS.get(str(stopped), str(stopped or "not finished")),
    ]
