"""Report section on letters among digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sumpool.report.run.curves import score_picture
from sumpool.report.section import Section, grouped, provenance, seeds_label, values
from sumpool.report.tables import Table
from sumpool.studies.shared.reporting import Column, seeds_table
from sumpool.system.rows import Row

_COLUMNS: dict[str, Column] = {
    "map_at_r": ("MAP@R [%]", 1, 100.0),
    "precision_at_1": ("P@1 [%]", 1, 100.0),
    "letter_weight": ("weight on the letter [%]", 1, 100.0),
    "best_step": ("best step", 0, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate retrieval and the weight on the letter, by pooling."""
    caption = f"Letters that were never seen, {seeds_label(rows)}"
    return [seeds_table("pooling", _methods(rows), _COLUMNS, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and the scores of every seed."""
    config = rows[0].settings["config"]
    return Section(
        title="A letter among digits",
        question=(
            "A collage shows one letter and three digits in four tiles. The class is the letter, "
            "the digits are background that all classes share. Does an embedding learned through "
            "each pooling tell letters apart that it has never seen?"
        ),
        tables=tables(rows),
        pictures=[
            score_picture(
                label, "test", {method: values(own, name) for method, own in _methods(rows).items()}
            )
            for name, label in (("map_at_r", "MAP@R"), ("precision_at_1", "P@1"))
        ],
        notes=[
            f"The methods differ in the pooling alone: {config['backbone']}, "
            f"{config['embedding_size']} dimensions, loss {str(config['loss']).upper()}, learning "
            f"rate {config['lr']:g}, {rows[0].settings['steps']} steps of {config['batch_size']} "
            f"images{_start(rows[0])}, the model of the best validation MAP@R. GSP: "
            f"m = {config['prototypes']}, μ = {config['mu']:g}, "
            f"ε = {config['eps']:g}{_keys(config)}.",
            "Weight on the letter: the share of the pooling weight that falls on the letter's "
            f"tile, a quarter of the image. {rows[0].metrics['queries']:.0f} queries. Every run "
            "has a page of its own under runs/.",
        ],
        provenance=provenance(rows),
    )


def _start(row: Row) -> str:
    # Rows of earlier versions started from random weights.
    steps = row.settings.get("start_steps")
    return "" if steps is None else f" after {steps} on letters alone, which all runs share"


def _keys(config: dict[str, Any]) -> str:
    # Earlier versions compared two poolings.
    return f"; on keys: μ = {config['keys_mu']:g}" if "keys_mu" in config else ""


def _methods(rows: list[Row]) -> dict[str, list[Row]]:
    # Sorted because parallel cells are stored in the order in which they finish.
    ordered = sorted(rows, key=lambda row: (row.cell["method"], row.cell["seed"]))
    return grouped(ordered, lambda row: str(row.cell["method"]))
