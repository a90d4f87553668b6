"""The section builder used by most studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from sumpool.report.labels import conditions
from sumpool.report.plots import picture
from sumpool.report.section import Section, provenance
from sumpool.report.tables import Table
from sumpool.system.rows import Row


def study_section(
    rows: Sequence[Row],
    *,
    title: str,
    question: str,
    tables: Sequence[Table],
    figures: Mapping[str, Figure],
    notes: Sequence[str] = (),
    shared: Mapping[str, Any] | None = None,
    **options: Any,
) -> Section:
    """Build a section from stored rows, with their shared settings and provenance.

    ``figures`` are keyed by alternative text. ``shared`` holds the settings listed after the notes;
    None uses those of the rows. ``options`` are passed to :func:`~sumpool.report.plots.picture`.
    """
    pictures = [picture(figure, alt, **options) for alt, figure in figures.items()]
    notes = [*notes, *conditions(rows[0].settings if shared is None else shared)]
    return Section(title, question, tables, pictures, notes, provenance(rows))
