"""The studies that a report knows, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sumpool.report.section import Section
from sumpool.report.tables import Table
from sumpool.studies.averaging import section as averaging_section
from sumpool.studies.ccp_geometry import section as ccp_geometry_section
from sumpool.studies.ccp_plane import section as ccp_plane_section
from sumpool.studies.ccp_search import section as ccp_search_section
from sumpool.studies.ccp_settings import section as ccp_settings_section
from sumpool.studies.centers import section as center_section
from sumpool.studies.collage import section as collage_section
from sumpool.studies.cost import section as cost_section
from sumpool.studies.glyphs import section as glyph_section
from sumpool.studies.grids import (
    ccp_batch_section,
    ccp_pool_section,
    ccp_problems_section,
    screening_section,
    share_section,
)
from sumpool.studies.grids import components_section as component_section
from sumpool.studies.grids import prototypes_section as grid_section
from sumpool.studies.prediction import section as prediction_section
from sumpool.studies.tokens import section as token_section
from sumpool.studies.toy import section as toy_section
from sumpool.studies.zero_shot_loss import section as variant_section
from sumpool.system.files import StoreError
from sumpool.system.rows import Row, read_rows


class StudyReport(NamedTuple):
    """How a study is told.

    Attributes:
        tables: Its numbers from its rows; draws nothing.
        section: The whole of it from its folder and rows.
    """

    tables: Callable[[list[Row]], list[Table]]
    section: Callable[[Path, list[Row]], Section]


#: The chapters by the name of their study.
CHAPTERS: Mapping[str, StudyReport] = {
    name: StudyReport(module.tables, module.section)
    for name, module in {
        "glyphs": glyph_section,
        "toy": toy_section,
        "tokens": token_section,
        "margins": token_section,
        "collage": collage_section,
        "components": component_section,
        "share": share_section,
        "prototypes": grid_section,
        "screening": screening_section,
        "zero-shot-loss": variant_section,
        "prediction": prediction_section,
        "ccp-plane": ccp_plane_section,
        "ccp-geometry": ccp_geometry_section,
        "ccp-search": ccp_search_section,
        "ccp-pool": ccp_pool_section,
        "ccp-problems": ccp_problems_section,
        "ccp-batch": ccp_batch_section,
        "ccp-settings": ccp_settings_section,
        "centers": center_section,
        "averaging": averaging_section,
        "cost": cost_section,
    }.items()
}


def section(folder: Path) -> Section:
    """The section of the study whose results are in ``folder``."""
    rows = _known_rows(folder)
    return CHAPTERS[rows[0].study].section(folder, rows)


def tables(folder: Path) -> list[Table]:
    """The tables of the study whose results are in ``folder``."""
    rows = _known_rows(folder)
    return CHAPTERS[rows[0].study].tables(rows)


def _known_rows(folder: Path) -> list[Row]:
    rows = read_rows(folder)
    if not rows:
        raise StoreError(f"{folder} holds no finished cell: run the study first")
    if rows[0].study not in CHAPTERS:
        known = ", ".join(CHAPTERS)
        raise StoreError(f"{folder} holds the study {rows[0].study!r}; a report knows {known}")
    return rows
