"""Report section on the toy map: which pixels are pooled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sumpool.report.section import Section, grouped, seeds_label
from sumpool.report.tables import Table
from sumpool.studies.shared.reporting import seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.studies.toy.figures import draw
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate how each pooling covers the foreground."""

    def name(row: Row) -> tuple[float, str]:
        method, mu = str(row.cell["method"]), float(row.cell["mu"])
        return (0.0, method) if method == "GAP" else (mu, f"{method}, μ = {mu:g}")

    groups = {label: own for (_, label), own in sorted(grouped(rows, name).items())}
    ignored = f"foreground pixels ignored (of {_foreground(rows[0].settings)})"
    columns = {
        "foreground_weight": ("weight on foreground [%]", 1, 100.0),
        "covered": ("foreground covered [%]", 1, 100.0),
        "ignored": (ignored, 1, 1.0),
    }
    return [seeds_table("pooling", groups, columns, f"Toy map, {seeds_label(rows)} of noise")]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and the pooling weights of the first seed."""
    settings = rows[0].settings
    side = int(settings["side"])
    share = _foreground(settings) / side**2
    return study_section(
        rows,
        title="Which pixels are pooled",
        question=(
            f"A {side}×{side} map holds a red and a blue block on green; red and blue are the "
            f"prototypes. The true share of the foreground is {share:g}. What happens if it is "
            "under-estimated?"
        ),
        tables=tables(rows),
        figures={
            "The map, and the pooling weights of the hard problem, the smooth problem and "
            "average pooling as gray levels.": draw(folder, rows)
        },
        shared={},
        dpi=150,
        bbox_inches="tight",
        pad_inches=0.1,
        notes=[
            "The hard problem P1 takes the nearest pixels until the share μ is used up and ignores "
            f"the rest of the foreground. The smooth problem P2 (ε = {settings['eps']:g}) spreads "
            "the same share over all of it. Average pooling weighs foreground and ground alike.",
            f"Covered: a weight of at least {settings['covered']:.0%} of the largest. "
            "Ignored: a weight of exactly 0. The figure shows the first seed.",
        ],
    )


def _foreground(settings: Mapping[str, Any]) -> int:
    return 2 * int(settings["block"]) ** 2
