"""Report section on collages: all poolings, two losses, and how close each gets to the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sumpool.report.labels import dataset_label, losses_and_rates, rate_name, trained_with
from sumpool.report.section import (
    NOTHING,
    Section,
    grouped,
    over_seeds,
    seed_count,
    seeds_label,
    values,
)
from sumpool.report.style import mean_and_deviation
from sumpool.report.tables import Table
from sumpool.studies.collage import attention_figure, method_figure
from sumpool.studies.collage.method_figure import BOUND, LARGE, has_gsp
from sumpool.studies.shared.reporting import SCORES
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Scores whose best value is highlighted.
_RANKED = ("map_at_r", "precision_at_1")

Cells = Mapping[tuple[str, str, float], Sequence[Row]]


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate scores and weight on the foreground by method (rows), loss and rate (columns)."""
    cells, methods, pairs = _cells(rows), _methods(rows), losses_and_rates(rows)
    seeds = seed_count(rows)
    header = ["pooling"]
    columns: list[list[str]] = []
    strong: set[tuple[int, int]] = set()
    for loss, rate in pairs:
        for name, label in SCORES.items():
            header.append(f"{loss} {rate_name(rate)} {label}")
            own = {method: cells.get((method, loss, rate), []) for method in methods}
            columns.append([over_seeds(own[method], name, 1, 100, seeds) for method in methods])
            if name in _RANKED:
                strong |= {(line, len(columns)) for line in _best(own, name)}
    lines = [[method, *(column[line] for column in columns)] for line, method in enumerate(methods)]
    caption = (
        f"Test {dataset_label(rows[0].settings)}, of sub-classes never seen. Columns: loss, "
        "learning rate and what is measured; weight: the share of the pooling weight on the "
        f"foreground tile; all in %, {seeds_label(rows)}; the best of {_size(rows)} dimensions "
        "stand out"
    )
    if any(")" in text for column in columns for text in column):
        caption += "; in brackets how many seeds where there are fewer"
    return [Table(header, lines, caption, strong)]


def gap_closed(rows: Sequence[Row]) -> list[str]:
    """State, per loss and learning rate, how much of the gap-to-distilled difference is gained."""
    cells = _cells(rows)
    sentences = []
    for loss, rate in losses_and_rates(rows):
        means = {
            method: mean_and_deviation(found)[0]
            for method in ("gap", "gsp", "gsp+zs", BOUND)
            if (found := values(cells.get((method, loss, rate), []), "map_at_r"))
        }
        where = f"{loss}, learning rate {rate_name(rate)}"
        if "gap" not in means or BOUND not in means:
            sentences.append(f"{where}: {NOTHING}")
            continue
        way = means[BOUND] - means["gap"]
        if way <= 0:
            sentences.append(f"{where}: distilled is no better than gap ({way:+.1f} points)")
            continue
        closed = ", ".join(
            f"{method} {(means[method] - means['gap']) / way:.0%}"
            if method in means
            else f"{method} {NOTHING}"
            for method in ("gsp", "gsp+zs")
        )
        sentences.append(f"{where}: {closed} of {way:.1f} points")
    return sentences


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables, MAP@R as bars and, for the first seed, attention on collages."""
    figures = {
        "MAP@R of every pooling as bars with standard deviations, for each loss and learning "
        "rate, beside that of the foreground alone.": method_figure.draw(rows)
    }
    shown = attention_figure.shown_rows(rows)
    if shown:
        names = ", ".join(str(row.cell["method"]) for row in shown)
        figures[
            f"Training and test collages under the pooling weights of {names}; the foreground tile "
            "is outlined."
        ] = attention_figure.draw(folder, shown)
    shown_note = "The collages are those of the first seed; weights are relative to equal ones."
    return study_section(
        rows,
        title="A foreground tile among three of background",
        question=(
            "A collage has one tile of a class and three of background that all classes share. "
            "Which pooling finds the tile, and how near does it come to a model that is given the "
            "tile alone?"
        ),
        tables=tables(rows),
        figures=figures,
        notes=[
            "How much of the MAP@R between gap and distilled is gained. "
            + "; ".join(gap_closed(rows))
            + ".",
            "distilled: trained and evaluated on the foreground tile alone. gsp+zs: gsp with the "
            f"zero-shot loss. Names that end in {LARGE} have 8192 dimensions, all others "
            f"{_size(rows)}. Equal weights put 25% on the foreground tile; a dash stands where a "
            "method has no weights of positions, or a cell is not computed.",
            *([shown_note] if shown else []),
        ],
    )


def _cells(rows: Sequence[Row]) -> Cells:
    return grouped(rows, lambda row: (str(row.cell["method"]), *trained_with(row)))


def _methods(rows: Sequence[Row]) -> list[str]:
    """Return the methods in order: gap, others by name, those with gsp, and the bound."""

    def rank(method: str) -> tuple[int, int, str]:
        parts = method.split("+")
        if method in ("gap", BOUND):
            return (0 if method == "gap" else 3, 0, method)
        return (2 if has_gsp(method) else 1, parts[0] == "gsp" and len(parts), method)

    return sorted({str(row.cell["method"]) for row in rows}, key=rank)


def _best(own: Mapping[str, Sequence[Row]], name: str) -> list[int]:
    """Return the table rows with the highest mean among methods of the usual embedding size."""
    means = {
        line: mean_and_deviation(found)[0]
        for line, (method, rows) in enumerate(own.items())
        if method != BOUND and not method.endswith(LARGE) and (found := values(rows, name))
    }
    return [line for line, mean in means.items() if mean == max(means.values())]


def _size(rows: Sequence[Row]) -> int:
    """Return the embedding size of all but the large methods."""
    return int(rows[0].settings.get("embedding_size", 128))
