"""The page of a run: one HTML file that says and shows what came of it."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.report.html_page import paragraphs, pictures_html, write_document
from sumpool.report.overlays import scale_html, scale_top
from sumpool.report.run import thumbnails
from sumpool.report.run.ccp_problems import problem_note, problem_pictures, problem_table
from sumpool.report.run.curves import run_pictures
from sumpool.report.run.files import Run, read_run
from sumpool.report.run.folder import REPORT
from sumpool.report.run.gallery import Gallery
from sumpool.report.run.labels import headline, metric_table, summary
from sumpool.report.run.map_figure import legend_html, map_picture

STYLE = (
    thumbnails.STYLE
    + """
.lead { font-size: 1.2rem; line-height: 1.35; margin: .8rem 0 .4rem; font-weight: 600; }
nav { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .9rem; margin: 1rem 0 0; }
a { color: inherit; }
.missing { color: var(--dim); font-style: italic; }
pre { overflow-x: auto; font-size: .8rem; line-height: 1.45; padding: .7rem;
  border: 1px solid var(--line); border-radius: 6px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .88rem; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
figure.chart img { border-radius: 4px; }
.legend { display: flex; flex-wrap: wrap; justify-content: center; gap: .1rem 1.2rem; margin: 0;
  padding: 0; list-style: none; font-size: .82rem; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) {
  figure.chart { background: none; }
  figure.chart img, .legend span { filter: invert(.92) hue-rotate(180deg); }
}
"""
)


def write_run_page(run: Path, out: Path | None = None) -> Path:
    """Write the page of the run in the folder ``run``.

    The run may be unfinished, and may lack any part: the page says what is not there.

    Args:
        run: Folder of the run.
        out: The page; None is ``report.html`` in the folder.

    Returns:
        The page.

    Raises:
        StoreError: If the folder holds no run, or a file in it is damaged.
    """
    read = read_run(run)
    sections = {
        "Metrics": _metrics(read),
        "Training": _training(read),
        **_problems(read),
        **_shown(read.gallery),
        "Configuration": _configuration(read),
    }
    names = {title: title.split()[0].lower() for title in sections}
    links = "\n".join(f'<a href="#{name}">{title}</a>' for title, name in names.items())
    parts = "\n".join(
        f'<section id="{names[title]}">\n<h2>{title}</h2>\n{body}\n</section>'
        for title, body in sections.items()
    )
    body = (
        f'<p class="lead">{html.escape(headline(read))}</p>\n'
        f"<p>{html.escape(summary(read))}</p>\n{paragraphs(read.notes)}\n"
        f"<nav>\n{links}\n</nav>\n{parts}"
    )
    title = f"sumpool run: {read.folder.resolve().name}"
    return write_document(out or run / REPORT, title, body, STYLE)


def missing(text: str) -> str:
    """A line that says what is not there."""
    return f'<p class="missing">{html.escape(text)}</p>'


def _metrics(run: Run) -> str:
    table = metric_table(run)
    if not table.rows:
        return missing("Neither validation nor test has been made yet.")
    text = (
        f'<p class="caption">{html.escape(table.caption)}</p>\n'
        f'<div class="scroll" tabindex="0">\n{table.html()}\n</div>'
    )
    if "test" not in run.evaluations:
        text += "\n" + missing("There is no evaluation on a test set.")
    return text


def _training(run: Run) -> str:
    pictures = run_pictures(run)
    if not pictures:
        return missing("Nothing has been logged yet.")
    text = pictures_html(pictures, "chart")
    loss = run.log.get("loss")
    if loss is not None and not np.isfinite(loss).all():
        first = int(run.log["step"][~np.isfinite(loss)][0])
        text += f"\n<p>The loss is not a finite number at step {first:,}.</p>"
    if "step" not in run.validation:
        text += "\n" + missing("No validation has been made yet.")
    return text


def _problems(run: Run) -> Mapping[str, str]:
    if not run.problems:
        return {}
    table = problem_table(run.problems)
    text = (
        f"<p>{html.escape(problem_note(run.problems))}</p>\n"
        f"{pictures_html(problem_pictures(run.problems), 'chart')}\n"
        f'<p class="caption">{html.escape(table.caption)}</p>\n'
        f'<div class="scroll" tabindex="0">\n{table.html()}\n</div>'
    )
    return {"Problems": text}


def _shown(gallery: Gallery | None) -> Mapping[str, str]:
    if gallery is None:
        why = "No pictures were collected for this run (they are when training ends)."
        return {"Retrieved images": missing(why)}
    return {
        "Retrieved images": _retrieved(gallery),
        "Weights of the pooling": _weights(gallery),
        "Prototypes": _prototypes(gallery),
        "Map of the embedding": _map(gallery),
    }


def _retrieved(gallery: Gallery) -> str:
    intro = (
        f"Images of the {gallery.source} set. A query is followed by the images nearest to it, "
        "nearest first, with 1 − ½ distance², which is the cosine of unit vectors. ✓ and a plain "
        "frame: the same class. ✗ and a dashed frame: another class."
    )
    parts = [f"<p>{html.escape(intro)}</p>"]
    for title, queries in (
        (f"Worst of {gallery.queries:,} queries, by average precision", gallery.worst),
        ("Queries drawn at random", gallery.sample),
    ):
        shown = thumbnails.queries_html(queries, gallery.images) if queries else missing("None.")
        parts.append(f"<h3>{html.escape(title)}</h3>\n{shown}")
    return "\n".join(parts)


def _weights(gallery: Gallery) -> str:
    if not gallery.weights:
        return _because(gallery, "weights", "This pooling has no weights to show.")
    if thumbnails.is_flat(gallery.weights):
        return missing("Every position of an image has the same weight, as in average pooling.")
    top = scale_top(gallery.weights.values())
    grid = "×".join(map(str, next(iter(gallery.weights.values())).shape))
    intro = (
        f"Weight p of each of the n positions ({grid}) relative to an equal one, n·p: 1 is what "
        "average pooling would give, 0 leaves the position out. All images are on one scale and "
        "are shown as the network sees them; colours are smoothed between positions. Spread: the "
        "share of positions that equal weights would cover to be as concentrated, 1/(n Σp²)."
    )
    return "\n".join(
        [
            f"<p>{html.escape(intro)}</p>",
            scale_html(top),
            "<h3>Images drawn at random</h3>",
            thumbnails.weights_html(gallery, gallery.sample, top),
            "<h3>The worst queries</h3>",
            thumbnails.weights_html(gallery, gallery.worst, top),
        ]
    )


def _prototypes(gallery: Gallery) -> str:
    if gallery.usage is None or not gallery.prototypes:
        return _because(gallery, "prototypes", "This pooling has no prototypes.")
    count = len(gallery.usage)
    idle = int((gallery.usage < 0.1 / count).sum())
    intro = (
        f"The {len(gallery.prototypes)} most used of {count} prototypes (an equal share would be "
        f"{1 / count:.1%}; {idle} receive less than a tenth of that). Each is shown by the "
        "positions that send it most, at most one an image: the box marks the position, the number "
        "is the weight that goes from it to the prototype, relative to an equal one (n·π/μ)."
    )
    notes = paragraphs([note for note in gallery.notes if "prototypes" in note])
    shown = thumbnails.prototypes_html(gallery.prototypes, gallery.images)
    return f"<p>{html.escape(intro)}</p>\n{notes}\n{shown}"


def _map(gallery: Gallery) -> str:
    chart = gallery.embedding_map
    if chart is None:
        return _because(gallery, "map", "There is no map of the embedding.")
    classes = len(np.unique(chart.labels))
    colored = len(chart.colored)
    chosen = (
        "all classes in colour"
        if colored == classes
        else f"the {colored} classes that are retrieved worst in colour, {classes - colored} grey"
    )
    keeps = "neighbourhoods, not distances" if chart.method == "t-SNE" else "the widest directions"
    note = (
        f"{chart.method} in two dimensions, one mark an image, {chosen}. It keeps {keeps}: it is "
        "a picture to look at, and the metrics above are the measure."
    )
    picture = pictures_html([map_picture(chart, gallery.source)], "chart")
    return f"<p>{html.escape(note)}</p>\n{picture}\n{legend_html(chart)}"


def _because(gallery: Gallery, subject: str, otherwise: str) -> str:
    reasons = [note for note in gallery.notes if subject in note]
    return missing(" ".join(reasons) or otherwise)


def _configuration(run: Run) -> str:
    facts = run.facts
    listed = {
        "started": facts.get("started"),
        "finished": facts.get("finished") or "not finished",
        "command": shlex.join(map(str, facts.get("command") or [])),
        **{name: facts.get(name) for name in ("machine", "versions", "images", "classes")},
    }
    terms = "\n".join(
        f"<dt>{name}</dt><dd>{html.escape(_plain(value))}</dd>"
        for name, value in listed.items()
        if value
    )
    return (
        f"<dl>\n{terms}\n</dl>\n<details><summary>All options (config.yaml)</summary>\n"
        f"<pre>{html.escape(run.config_text)}</pre></details>\n"
        f'<p class="provenance">Drawn from the files in {html.escape(str(run.folder))}.</p>'
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
