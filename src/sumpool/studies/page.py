"""Pages, tables and figures of studies, built only from stored results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sumpool.report import html_page
from sumpool.report.run.folder import REPORT
from sumpool.report.section import Section
from sumpool.report.tables import Table
from sumpool.studies.catalog import STUDIES
from sumpool.studies.shared.study import Study
from sumpool.system.files import StoreError, refuse_overwriting, write_atomic
from sumpool.system.rows import ROWS, Row, read_rows

TABLES = "tables.md"


def section_of(folder: Path) -> Section:
    """Return the section of the study whose results are in ``folder``."""
    study, rows = _stored(folder)
    return study.section(folder, rows)


def tables_of(folder: Path) -> list[Table]:
    """Return the tables of the study whose results are in ``folder``, without drawing figures."""
    study, rows = _stored(folder)
    return study.tables(rows)


def _stored(folder: Path) -> tuple[Study, list[Row]]:
    rows = read_rows(folder)
    if not rows:
        raise StoreError(f"{folder} holds no finished cell: run the study first")
    name = rows[0].study
    if name not in STUDIES:
        known = ", ".join(STUDIES)
        raise StoreError(f"{folder} holds the study {name!r}; a report knows {known}")
    return STUDIES[name], rows


def write_page(folders: Sequence[Path], out: Path, title: str) -> Path:
    """Write the sections of the studies in ``folders``, in that order, to the page ``out``.

    Images are embedded in the page, which refers to no other file. Returns ``out``.
    """
    sections = [section_of(folder) for folder in folders]
    return html_page.write_page(out, "studies.html", title=title, sections=sections)


def refuse_foreign_files(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a folder with files that a study would overwrite but did not write.

    Raises:
        StoreError: If there is such a file; the message names it.
    """
    html_page.refuse_foreign_page(folder / REPORT, overwrite=overwrite)
    if not (folder / ROWS).is_file():
        own = [folder / TABLES, *sorted(folder.glob("figure-*.png"))]
        refuse_overwriting(own, overwrite=overwrite)


def write_files(folder: Path) -> list[Path]:
    """Write the tables (Markdown) and figures (PNG) of the study in ``folder`` to that folder.

    Returns the paths of ``tables.md`` and ``figure-1.png``, ``figure-2.png``, ….
    """
    part = section_of(folder)
    tables = folder / TABLES
    texts = [f"{table.caption}\n\n{table.markdown()}\n" for table in part.tables]
    write_atomic(tables, "\n".join([*texts, f"{part.provenance}\n"]).encode())
    figures = []
    for number, picture in enumerate(part.pictures, 1):
        figures.append(folder / f"figure-{number}.png")
        write_atomic(figures[-1], picture.png)
    return [tables, *figures]
