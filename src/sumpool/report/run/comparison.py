"""A page that compares groups of runs: the same training with other seeds, and with a change."""

from __future__ import annotations

import html
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from sumpool.report.html_page import image_html, paragraphs, pictures_html, write_document
from sumpool.report.overlays import overlay, scale_html, scale_top
from sumpool.report.run.curves import SCORES, comparison_pictures, score_picture
from sumpool.report.run.files import Run, read_run
from sumpool.report.run.folder import REPORT
from sumpool.report.run.groups import group_runs, seed_of
from sumpool.report.run.labels import ON_TEST, PERCENT, duration, seconds_of, summary
from sumpool.report.run.page import STYLE, missing
from sumpool.report.run.thumbnails import is_flat
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.files import StoreError

__all__ = ["comparison_table", "group_runs", "write_comparison_page"]

#: Most images whose weights are shown side by side.
IMAGES = 12

PAGE_STYLE = (
    STYLE
    + """
.side { display: grid; grid-template-columns: repeat(auto-fill, minmax(var(--set), 1fr));
  gap: 1rem 1.4rem; }
.set { display: grid; gap: 3px; }
.set .text { grid-column: 1 / -1; }
.heads { font-size: .74rem; color: var(--dim); text-align: center; }
@media (max-width: 46rem) { .side { grid-template-columns: 1fr; } }
"""
)


def write_comparison_page(
    groups: Mapping[str, Sequence[Path]], out: Path, title: str, notes: Sequence[str] = ()
) -> Path:
    """Write a page that compares groups of runs.

    Args:
        groups: Folders of runs by the name of their group, the one compared with first.
        out: The page.
        title: Its heading.
        notes: Paragraphs below the heading: what is compared, and under which conditions.

    Returns:
        ``out``.

    Raises:
        StoreError: If there is nothing to compare, or a folder holds no run.
    """
    read = _read(groups)
    source = _source(read)
    table = _table(read, source)
    scores = {
        label: {group: _values(runs, source, metric) for group, runs in read.items()}
        for metric, label in SCORES.items()
    }
    anything = any(values for groups in scores.values() for values in groups.values())
    pictures = [score_picture(label, source, own) for label, own in scores.items()]
    sections = {
        "Scores": _scrolled(table)
        + "\n"
        + paragraphs(_differences(read, source))
        + ("\n" + pictures_html(pictures, "chart") if anything else ""),
        "Training": _curves(read),
        "Weights of the pooling": _weights(read),
        "Runs": _runs(read, source, out),
    }
    links = "\n".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in sections)
    parts = "\n".join(
        f'<section id="{_anchor(name)}">\n<h2>{name}</h2>\n{body}\n</section>'
        for name, body in sections.items()
    )
    body = f"{paragraphs(notes)}\n<nav>\n{links}\n</nav>\n{parts}"
    return write_document(out, title, body, PAGE_STYLE)


def comparison_table(groups: Mapping[str, Sequence[Path]]) -> Table:
    """Mean ± standard deviation of each group's scores, on the test set where there is one."""
    read = _read(groups)
    return _table(read, _source(read))


def _read(groups: Mapping[str, Sequence[Path]]) -> dict[str, list[Run]]:
    if not groups or not all(groups.values()):
        raise StoreError(f"each group must hold a run, got {dict(groups)}")
    return {name: [read_run(folder) for folder in folders] for name, folders in groups.items()}


def _source(read: Mapping[str, Sequence[Run]]) -> str:
    tested = any("test" in run.evaluations for runs in read.values() for run in runs)
    return "test" if tested else "validation"


def _values(runs: Sequence[Run], source: str, metric: str) -> list[float]:
    found = [(run.scores(source) or {}).get(metric) for run in runs]
    return [value for value in found if value is not None and math.isfinite(value)]


def _table(read: Mapping[str, Sequence[Run]], source: str) -> Table:
    rows = []
    for group, runs in read.items():
        cells = []
        for metric in PERCENT:
            values = _values(runs, source, metric)
            cells.append(mean_and_spread(values, 1, 100) if values else "–")
        done = len(_values(runs, source, "mean_average_precision_at_r"))
        count = str(done) if done == len(runs) else f"{done} of {len(runs)}"
        mark = " †" if any(run.selection == "test" for run in runs) else ""
        rows.append([group + mark, count, *cells])
    over = "mean ± standard deviation over the runs of a group"
    if any(run.selection == "test" for runs in read.values() for run in runs):
        over += f"; groups marked † were {ON_TEST}"
    return Table(("group", "runs", *PERCENT.values()), rows, f"Scores on the {source} set, {over}")


def _differences(read: Mapping[str, Sequence[Run]], source: str) -> list[str]:
    """Each group against the first, in words."""
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


def _curves(read: Mapping[str, Sequence[Run]]) -> str:
    pictures = comparison_pictures(read)
    if not pictures:
        return missing("Nothing has been logged yet.")
    note = (
        "Each run is a faint line; the strong one is the mean over the steps that all runs have. "
        "The base loss is without the zero-shot loss, so that groups can be compared."
    )
    return f"<p>{note}</p>\n{pictures_html(pictures, 'chart')}"


def _weights(read: Mapping[str, Sequence[Run]]) -> str:
    """The same images under each group's first run that has weights."""
    chosen = {
        group: next((run for run in runs if run.gallery and run.gallery.weights), None)
        for group, runs in read.items()
    }
    shown = {group: run for group, run in chosen.items() if run is not None}
    lacking = ", ".join(group for group in read if group not in shown)
    words = missing(f"No weights were collected for {lacking}.") if lacking else ""
    maps = {}
    for group, run in shown.items():
        assert run.gallery is not None
        queries = {query.item: query for query in run.gallery.sample}
        maps[group] = {
            item: (run.gallery.images[query.image], run.gallery.weights[query.image], query)
            for item, query in queries.items()
            if query.image in run.gallery.weights
        }
    if not maps:
        return words or missing("No weights were collected.")
    first = next(iter(maps.values()))
    items = [item for item in first if all(item in own for own in maps.values())][:IMAGES]
    if not items:
        return words + missing("The groups were shown different images.")
    top = scale_top(own[item][1] for own in maps.values() for item in items)
    seeds = ", ".join(f"{group} seed {seed_of(run)}" for group, run in shown.items())
    flat = [group for group, own in maps.items() if is_flat({item: own[item][1] for item in items})]
    intro = (
        "The same images drawn at random, under the first run of each group "
        f"({seeds}). Weight p of each of n positions relative to an equal one, n·p; all on one "
        "scale." + (f" {', '.join(flat)}: every position has the same weight." if flat else "")
    )
    heads = "".join(f'<span class="heads">{html.escape(name)}</span>' for name in ("image", *maps))
    sets = []
    for item in items:
        jpeg, _, query = first[item]
        tiles = [image_html(jpeg, f"image of {query.class_name}", "jpeg")]
        for group, own in maps.items():
            alt = f"{query.class_name}: pooling weights of {group}"
            tiles.append(image_html(overlay(own[item][0], own[item][1], top), alt, "jpeg"))
        sets.append(
            f'<div class="set tile" style="grid-template-columns: repeat({len(tiles)}, 1fr)">'
            f'{heads}{"".join(tiles)}<span class="text name" title="{html.escape(item)}">'
            f"{html.escape(query.class_name)}</span></div>"
        )
    width = 6.5 * (1 + len(maps))
    side = f'<div class="side" style="--set: {width:g}rem">\n' + "\n".join(sets) + "\n</div>"
    return f"<p>{html.escape(intro)}</p>\n{scale_html(top)}\n{side}\n{words}"


def _runs(read: Mapping[str, Sequence[Run]], source: str, out: Path) -> str:
    """Every run in a line, with a link to its page where there is one."""
    lines, cells = [], []
    for group, runs in read.items():
        lines.append(f"{group}: {summary(runs[0])}")
        for run in runs:
            page = run.folder / REPORT
            name = html.escape(f"{group}, seed {seed_of(run)}")
            if page.is_file():
                # Relative: the folder may be moved or sent as a whole.
                link = quote(Path(os.path.relpath(page, out.parent)).as_posix())
                name = f'<a href="{link}">{name}</a>'
            cells.append(f"<tr><th>{name}</th>{_run_cells(run, source)}</tr>")
    header = "".join(
        f"<th>{name}</th>"
        for name in ("run", *(f"{label} [%]" for label in SCORES.values()), "best step", "steps",
                     "time", "stopped")
    )  # fmt: skip
    table = f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n" + "\n".join(cells)
    text = f'<div class="scroll" tabindex="0">\n{table}\n</tbody>\n</table>\n</div>\n'
    return text + paragraphs([f"First run of {line}" for line in lines])


def _run_cells(run: Run, source: str) -> str:
    scores = run.scores(source) or {}
    seconds = seconds_of(run)
    steps = run.facts.get("steps") or (int(run.log["step"][-1]) if "step" in run.log else None)
    stopped = run.facts.get("stopped")
    cells = [
        *(f"{100 * scores[metric]:.1f}" if metric in scores else "–" for metric in SCORES),
        *("–" if number is None else f"{number:,}" for number in (run.best_step, steps)),
        "–" if seconds is None else duration(seconds),
        {"max_steps": "last step"}.get(str(stopped), str(stopped or "not finished")),
    ]
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)


def _scrolled(table: Table) -> str:
    return (
        f'<p class="caption">{html.escape(table.caption)}</p>\n'
        f'<div class="scroll" tabindex="0">\n{table.html()}\n</div>'
    )


def _anchor(title: str) -> str:
    return title.split()[0].lower()
