"""Report section on learned tokens, at one margin or several."""

from __future__ import annotations

from pathlib import Path

from sumpool.report.section import Section, grouped, seeds_label
from sumpool.report.tables import Table
from sumpool.studies.shared.reporting import Column, seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.studies.tokens.figures import draw, margin_of
from sumpool.system.rows import Row

_COLUMNS: dict[str, Column] = {
    "map_at_r": ("MAP@R", 3, 1.0),
    "samples_inside_others": ("samples in a foreign hull [%]", 1, 100.0),
    "meeting_pairs": ("class pairs whose token hulls meet [%]", 1, 100.0),
    "class_weight": ("weight on class tokens [%]", 1, 100.0),
    "best_epoch": ("best epoch", 0, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R and measures of the hulls by pooling and margin."""
    alone = rows[0].study == "tokens"

    def name(row: Row) -> tuple[float, str]:
        margin, method = margin_of(row), str(row.cell["method"])
        return margin, method if alone else f"{method}, m⁻ = {margin:g}"

    groups = {label: own for (_, label), own in sorted(grouped(rows, name).items())}
    return [seeds_table("pooling", groups, _COLUMNS, f"Learned tokens, {seeds_label(rows)}")]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and the learned tokens of the first seed."""
    settings = rows[0].settings
    alone = rows[0].study == "tokens"
    margins = sorted({margin_of(row) for row in rows})
    at_limit = sum(row.metrics["epochs"] == settings["max_epochs"] for row in rows)
    methods = dict.fromkeys(str(row.cell["method"]) for row in rows)
    alt = "Tokens, pooled samples and the convex hulls of each class under {}."
    return study_section(
        rows,
        title="Learning tokens" + (" through a pooling" if alone else ": the role of the margin"),
        question=(
            f"{settings['classes']} classes have {settings['own']} tokens each and share "
            f"{settings['shared']} background tokens. A sample is {settings['length']} tokens, "
            "about half of them background. Tokens are learned through the pooled samples: does "
            "the pooling keep the classes apart?"
        ),
        tables=tables(rows),
        figures={alt.format(method): draw(folder, rows, method) for method in methods},
        shared={},
        dpi=130,
        bbox_inches="tight",
        pad_inches=0.1,
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
    )
