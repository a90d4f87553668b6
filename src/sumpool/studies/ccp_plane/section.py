"""The study of chance-constrained proxies in the plane on a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sumpool.report.labels import conditions
from sumpool.report.section import (
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
)
from sumpool.report.tables import Table, mean_and_spread
from sumpool.studies.ccp_plane.figures import draw_planes, draw_problems, problem_values, shown_rows
from sumpool.studies.shared.ccp_labels import METHODS, methods_in, note, problem_columns
from sumpool.system.rows import Row

#: Problems that the table has a line for; the others are in the figure.
LISTED = 12


def tables(rows: list[Row]) -> list[Table]:
    """Both methods, and the alternating one from problem to problem."""
    cells = grouped(rows, lambda row: str(row.cell["method"]))
    headings, told = problem_columns(rows)
    lines = [
        [
            METHODS[method],
            over_seeds(cells[method], "map_at_r", 1, 100),
            over_seeds(cells[method], "validation_map_at_r", 1, 100),
            *told(cells[method]),
        ]
        for method in methods_in(rows)
    ]
    header = ["training", "test MAP@R [%]", "validation MAP@R [%]", *headings]
    caption = f"{rows[0].settings['data']}, 2-D embeddings, {seeds_in_words(rows)}"
    both = [Table(header, lines, caption)]
    if "alternating" in cells:
        both.append(_problem_table(cells["alternating"], cells.get("one problem", [])))
    return both


def _problem_table(alternating: list[Row], alone: list[Row]) -> Table:
    columns = {
        "last_step": (0, 1.0),
        "value": (1, 100.0),
        "covering_radius": (3, 1.0),
        "relative_radius": (3, 1.0),
        "spread": (3, 1.0),
    }
    most = max(len(problem_values(row, "spread")) for row in alternating)
    lines = []
    for number in range(1, min(most, LISTED) + 1):
        own = [row for row in alternating if f"spread_{number}" in row.metrics]
        told = [over_seeds(own, f"{name}_{number}", *how) for name, how in columns.items()]
        lines.append([str(number), *told, str(len(own))])
    ends = [row.metrics for row in alternating]
    last = {name: [float(it[f"{name}_{int(it['problems'])}"]) for it in ends] for name in columns}
    lines.append(
        [
            "last",
            *(mean_and_spread(last[name], *how) for name, how in columns.items()),
            str(len(alternating)),
        ]
    )
    if alone:
        told = [over_seeds(alone, f"{name}_1", *how) for name, how in columns.items()]
        lines.append(["one problem alone", *told, str(len(alone))])
    header = ["problem", "last step", "validation MAP@R [%]", "covering radius"]
    return Table(
        [*header, "radius / distance of classes", "proxy spread", "trainings"],
        lines,
        "From problem to problem, mean ± standard deviation over the trainings that had as many",
    )


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    settings = rows[0].settings
    shown = shown_rows(rows)
    pictures = []
    if shown:
        pictures.append(
            render_png(
                partial(draw_planes, folder, shown),
                "Training images in the plane of their embedding, by class, with the converged "
                "proxies as boxes and the next ones as circles: after one problem alone, and after "
                "each of the first alternating problems and the last.",
            )
        )
    pictures.append(
        render_png(
            partial(draw_problems, rows),
            "Covering radius, alone and over the distance of classes, and spread of the proxies "
            "from problem to problem, one line a seed, with those of the single problem.",
        )
    )
    return Section(
        title="Chance-constrained proxies in the plane",
        question=(
            f"{settings['proxies']} proxies of each class of {settings['data']} learn beside "
            "embeddings of two dimensions. Drawn once they coalesce. When problems alternate, "
            "proxies are drawn again among images far from the ones before: do they stay apart, "
            "and do they cover their classes better and better?"
        ),
        tables=tables(rows),
        pictures=pictures,
        notes=[
            note(rows),
            "Distance of classes: mean distance between the middles of the proxies of two classes. "
            "Embeddings grow inside the unit ball while they are trained, and the covering radius "
            "with them; its ratio to the distance of classes does not depend on scale.",
            "Training, validation and test images are of the same classes here. The planes show "
            "the first seed, at the best step of each problem.",
            *conditions(settings),
        ],
        provenance=_provenance(rows),
    )


def _provenance(rows: list[Row]) -> str:
    told = provenance(rows)
    # Digits come with scikit-learn: there is no folder to name.
    return told.replace(" --data DIR", "") if rows[0].settings["data"] == "digits" else told
