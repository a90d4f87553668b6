"""The study of letters among digits on a page."""

from __future__ import annotations

from pathlib import Path

from sumpool.report.run.curves import score_picture
from sumpool.report.section import Section, over_seeds, provenance, seeds_in_words
from sumpool.report.tables import Table
from sumpool.system.rows import Row


def _glyph_methods(rows: list[Row]) -> dict[str, list[Row]]:
    # Sorted: cells that run side by side are stored in the order they finish.
    methods: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.cell["method"], row.cell["seed"])):
        methods.setdefault(str(row.cell["method"]), []).append(row)
    return methods


def tables(rows: list[Row]) -> list[Table]:
    """The numbers of the study, averaged over seeds."""
    lines = [
        [
            method,
            over_seeds(own, "map_at_r", 1, 100),
            over_seeds(own, "precision_at_1", 1, 100),
            over_seeds(own, "letter_weight", 1, 100),
            over_seeds(own, "best_step", 0),
        ]
        for method, own in _glyph_methods(rows).items()
    ]
    header = ("pooling", "MAP@R [%]", "P@1 [%]", "weight on the letter [%]", "best step")
    return [Table(header, lines, f"Letters that were never seen, {seeds_in_words(rows)}")]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
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
                label,
                "test",
                {
                    method: [float(row.metrics[name]) for row in own]
                    for method, own in _glyph_methods(rows).items()
                },
            )
            for name, label in (("map_at_r", "MAP@R"), ("precision_at_1", "P@1"))
        ],
        notes=[
            f"The methods differ in the pooling alone: {config['backbone']}, "
            f"{config['embedding_size']} dimensions, loss {str(config['loss']).upper()}, learning "
            f"rate {config['lr']:g}, {rows[0].settings['steps']} steps of {config['batch_size']} "
            "images, the model of the best validation MAP@R. GSP: "
            f"m = {config['prototypes']}, μ = {config['mu']:g}, ε = {config['eps']:g}.",
            "Weight on the letter: the share of the pooling weight that falls on the letter's "
            f"tile, a quarter of the image. {rows[0].metrics['queries']:.0f} queries. Every run "
            "has a page of its own under runs/.",
        ],
        provenance=provenance(rows),
    )
