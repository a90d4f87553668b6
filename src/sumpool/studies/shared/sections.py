"""The section of a study, as most of them are made."""

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
    """The section on stored rows, with what all runs share and where they come from.

    Args:
        rows: The rows.
        title: Heading.
        question: What the study asks.
        tables: Its numbers.
        figures: The figures by their alternative text.
        notes: How to read them.
        shared: Settings that are listed after the notes; None is those of the rows.
        **options: Options of :func:`~sumpool.report.plots.picture`.
    """
    pictures = [picture(figure, alt, **options) for alt, figure in figures.items()]
    notes = [*notes, *conditions(rows[0].settings if shared is None else shared)]
    return Section(title, question, tables, pictures, notes, provenance(rows))
