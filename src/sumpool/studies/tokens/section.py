"""The token study, at one margin or several, on a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sumpool.report.section import (
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
)
from sumpool.report.tables import Table
from sumpool.studies.tokens import figures as token_figure
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """The numbers of the study, averaged over seeds."""
    alone = rows[0].study == "tokens"

    def name(row: Row) -> tuple[float, str]:
        margin, method = token_figure.margin_of(row), str(row.cell["method"])
        return margin, method if alone else f"{method}, m⁻ = {margin:g}"

    lines = [
        [
            label,
            over_seeds(own, "map_at_r", 3),
            over_seeds(own, "samples_inside_others", 1, 100),
            over_seeds(own, "meeting_pairs", 1, 100),
            over_seeds(own, "class_weight", 1, 100),
            over_seeds(own, "best_epoch", 0),
        ]
        for (_, label), own in sorted(grouped(rows, name).items())
    ]
    header = (
        "pooling",
        "MAP@R",
        "samples in a foreign hull [%]",
        "class pairs whose token hulls meet [%]",
        "weight on class tokens [%]",
        "best epoch",
    )
    return [Table(header, lines, f"Learned tokens, {seeds_in_words(rows)}")]


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    settings = rows[0].settings
    alone = rows[0].study == "tokens"
    margins = sorted({token_figure.margin_of(row) for row in rows})
    at_limit = sum(row.metrics["epochs"] == settings["max_epochs"] for row in rows)
    return Section(
        title=(
            "Learning tokens through a pooling"
            if alone
            else "Learning tokens: the role of the margin"
        ),
        question=(
            f"{settings['classes']} classes have {settings['own']} tokens each and share "
            f"{settings['shared']} background tokens. A sample is {settings['length']} tokens, "
            "about half of them background. Tokens are learned through the pooled samples: does "
            "the pooling keep the classes apart?"
        ),
        tables=tables(rows),
        pictures=[
            render_png(
                partial(token_figure.draw, folder, methods=(method,)),
                f"Tokens, pooled samples and the convex hulls of each class under {method}.",
            )
            for method in dict.fromkeys(str(row.cell["method"]) for row in rows)
        ],
        notes=[
            "Average pooling (GAP) mixes background into every embedding, more of it or less from "
            "sample to sample. Each class is drawn out into a spoke towards the background, and "
            "the hulls of the tokens that make up the classes all meet there. Sum pooling (GSP) "
            "learns prototypes that leave most of the background out.",
            "MAP@R is of fresh samples of the same classes, since it is the tokens that are "
            "learned. A token is active in a class, and so in its token hull, if its mean weight "
            f"in the class's samples is at least {settings['active']:.0%} of an equal one.",
            f"GSP: m = {settings['prototypes']} prototypes, μ = {settings['mu']:g}, "
            f"ε = {settings['eps']:g}. Contrastive loss: m⁺ = {settings['positive_margin']:g}, "
            f"m⁻ = {', '.join(f'{margin:g}' for margin in margins)}. Training stops after "
            f"{settings['patience']} epochs of {settings['epoch_batches']} batches without a "
            f"better validation MAP@R, or after {settings['max_epochs']} epochs "
            f"({at_limit} of {len(rows)} runs).",
            "How far GAP falls behind depends on the margin: with a smaller one it comes closer to "
            "GSP (sumpool study margins). The figures show the first seed.",
        ],
        provenance=provenance(rows),
    )
