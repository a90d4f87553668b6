"""The page of a run: one HTML file with its results."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.report.html_page import write_page
from sumpool.report.overlays import scale_stops, scale_top
from sumpool.report.run.ccp_problems import problem_note, problem_pictures, problem_table
from sumpool.report.run.curves import run_pictures
from sumpool.report.run.files import Run, read_run
from sumpool.report.run.folder import REPORT, RUN
from sumpool.report.run.gallery import Gallery
from sumpool.report.run.labels import headline, metric_table, summary
from sumpool.report.run.map_figure import map_legend, map_picture
from sumpool.report.run.weight_maps import is_flat, weight_maps

#: The first and last sections of every page.
_FIRST, _LAST = ("Metrics", "Training"), ("Configuration",)
#: Maximum number of omitted images that the page names.
LISTED = 20
#: Sections of the gallery; without one, only the first is there.
_SHOWN = ("Retrieved images", "Weights of the pooling", "Prototypes", "Map of the embedding")


def write_run_page(run: Path, out: Path | None = None) -> Path:
    """Write the page of the run in the folder ``run``.

    The run may be unfinished or lack any part: the page states what is missing.

    Args:
        run: Folder of the run.
        out: Path of the page; None for ``report.html`` in the folder.

    Returns:
        The path of the page.

    Raises:
        StoreError: If the folder holds no run, or a file in it is damaged.
    """
    read = read_run(run)
    problems = ("Problems",) if read.problems else ()
    shown = _SHOWN if read.gallery else _SHOWN[:1]
    return write_page(
        out or run / REPORT,
        "run.html",
        title=f"sumpool run: {read.folder.resolve().name}",
        titles=(*_FIRST, *problems, *shown, *_LAST),
        run=read,
        headline=headline(read),
        summary=summary(read),
        metrics=metric_table(read),
        curves=run_pictures(read),
        diverged=_first_not_finite(read),
        problems=_problems(read),
        facts=_facts(read),
        **_gallery(read.gallery),
    )


def _first_not_finite(run: Run) -> int | None:
    """First step whose loss is not finite; None if there is none."""
    loss = run.log.get("loss")
    if loss is None or np.isfinite(loss).all():
        return None
    return int(run.log["step"][~np.isfinite(loss)][0])


def _problems(run: Run) -> dict[str, Any] | None:
    if not run.problems:
        return None
    return {
        "note": problem_note(run.problems),
        "pictures": problem_pictures(run.problems),
        "table": problem_table(run.problems),
    }


def _gallery(gallery: Gallery | None) -> dict[str, Any]:
    if gallery is None:
        return {"gallery": None}

    def notes(subject: str) -> list[str]:
        return [note for note in gallery.notes if subject in note]

    idle = 0
    if gallery.usage is not None:
        idle = int((gallery.usage < 0.1 / len(gallery.usage)).sum())
    weights = " ".join(notes("weights")) or "This pooling has no weights to show."
    return {
        "gallery": gallery,
        "notes": notes,
        "idle": idle,
        "weights": _weights(gallery) if gallery.weights else weights,
        "chart": _map(gallery),
    }


def _weights(gallery: Gallery) -> dict[str, Any] | str:
    if is_flat(gallery.weights.values()):
        return "Every position of an image has the same weight, as in average pooling."
    top = scale_top(gallery.weights.values())
    return {
        "grid": "×".join(map(str, next(iter(gallery.weights.values())).shape)),
        "scale": {"top": top, "stops": scale_stops()},
        "sample": weight_maps(gallery, gallery.sample, top),
        "worst": weight_maps(gallery, gallery.worst, top),
    }


def _map(gallery: Gallery) -> dict[str, Any] | None:
    chart = gallery.embedding_map
    if chart is None:
        return None
    classes, colored = len(np.unique(chart.labels)), len(chart.colored)
    chosen = (
        "all classes in color"
        if colored == classes
        else f"the {colored} classes that are retrieved worst in color, {classes - colored} gray"
    )
    return {
        "method": chart.method,
        "chosen": chosen,
        "picture": map_picture(chart, gallery.source),
        "legend": map_legend(chart),
    }


def _facts(run: Run) -> dict[str, str]:
    facts = run.facts
    listed = {
        "started": facts.get("started"),
        "finished": facts.get("finished") or "not finished",
        "command": shlex.join(map(str, facts.get("command") or [])),
        **{name: facts.get(name) for name in ("machine", "versions", "images", "classes")},
        "unreadable images left out": _left_out(facts),
    }
    return {name: _plain(value) for name, value in listed.items() if value}


def _left_out(facts: Mapping[str, Any]) -> str:
    """Number and first names of the omitted images; empty if there are none."""
    count, names = facts.get("broken_images"), facts.get("left_out")
    if not count:
        return ""
    listed = list(names.items()) if isinstance(names, Mapping) else []
    shown = "; ".join(f"{name} ({reason})" for name, reason in listed[:LISTED])
    more = f"; … (all of them are in {RUN})" if len(listed) > LISTED else ""
    return f"{count}: {shown}{more}" if shown else str(count)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
