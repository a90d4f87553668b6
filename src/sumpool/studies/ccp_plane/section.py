"""Report section on chance-constrained proxies in the plane."""

from __future__ import annotations

from pathlib import Path

from sumpool.report.section import Section, over_seeds, seeds_label
from sumpool.report.tables import Table, mean_and_spread
from sumpool.studies.ccp_plane.figures import draw_planes, draw_problems, problem_values
from sumpool.studies.shared.ccp_labels import PROBLEMS, by_method, methods_in, note, shown_rows
from sumpool.studies.shared.reporting import Column, headings, seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Maximum number of problems listed in the table; the figure shows all.
LISTED = 12
_SAMPLES = (
    "The base loss has samples in place of proxies: it compares the images of a batch with each "
    "other."
)
_COLUMNS: dict[str, Column] = {
    "map_at_r": ("test MAP@R [%]", 1, 100.0),
    "validation_map_at_r": ("validation MAP@R [%]", 1, 100.0),
    **PROBLEMS,
}
_PROBLEM_COLUMNS: dict[str, Column] = {
    "last_step": ("last step", 0, 1.0),
    "value": ("validation MAP@R [%]", 1, 100.0),
    "covering_radius": ("covering radius", 3, 1.0),
    "relative_radius": ("radius / distance of classes", 3, 1.0),
    "spread": ("proxy spread", 3, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate all methods, and alternating problems one by one."""
    caption = f"{rows[0].settings['data']}, 2-D embeddings, {seeds_label(rows)}"
    found = [seeds_table("training", by_method(rows), _COLUMNS, caption)]
    alone, alternating = (
        [row for row in rows if row.cell["method"] == method]
        for method in ("one problem", "alternating")
    )
    return [*found, _problem_table(alternating, alone)] if alternating else found


def _problem_table(alternating: list[Row], alone: list[Row]) -> Table:
    def line(name: str, own: list[Row], number: int) -> list[str]:
        cells = (
            over_seeds(own, f"{metric}_{number}", *look[1:])
            for metric, look in _PROBLEM_COLUMNS.items()
        )
        return [name, *cells, str(len(own))]

    most = max(len(problem_values(row, "spread")) for row in alternating)
    lines = [
        line(str(number), [row for row in alternating if f"spread_{number}" in row.metrics], number)
        for number in range(1, min(most, LISTED) + 1)
    ]
    last = [
        mean_and_spread([problem_values(row, metric)[-1] for row in alternating], *look[1:])
        for metric, look in _PROBLEM_COLUMNS.items()
    ]
    lines.append(["last", *last, str(len(alternating))])
    if alone:
        lines.append(line("one problem alone", alone, 1))
    return Table(
        ["problem", *headings(_PROBLEM_COLUMNS), "runs"],
        lines,
        "From problem to problem, mean ± standard deviation over the runs that had as many",
    )


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables, the planes of the first seed, and curves over problems."""
    settings = rows[0].settings
    shown = shown_rows(rows)
    figures = {}
    if shown:
        figures[
            "Training images in the plane of their embedding, by class, with the converged proxies "
            "as boxes and the next ones as circles: after one problem alone, and after each of the "
            "first alternating problems and the last."
        ] = draw_planes(folder, shown)
    figures[
        "Covering radius, alone and over the distance of classes, and spread of the proxies "
        "from problem to problem, one line per seed, with those of the single problem."
    ] = draw_problems(rows)
    return study_section(
        rows,
        title="Chance-constrained proxies in the plane",
        question=(
            f"{settings['proxies']} proxies of each class of {settings['data']} learn beside "
            "embeddings of two dimensions. Drawn once they coalesce. When problems alternate, "
            "proxies are drawn again among images far from the ones before: do they stay apart, "
            "and do they cover their classes better and better?"
        ),
        tables=tables(rows),
        figures=figures,
        notes=[
            note(rows),
            *([_SAMPLES] if "base" in methods_in(rows) else []),
            "Distance of classes: mean distance between the middles of the proxies of two classes. "
            "Embeddings grow inside the unit ball while they are trained, and the covering radius "
            "with them; its ratio to the distance of classes does not depend on scale.",
            "Training, validation and test images are of the same classes here. The planes show "
            "the first seed, at the best step of each problem.",
        ],
    )
