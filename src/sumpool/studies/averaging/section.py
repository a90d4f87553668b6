"""Report section on average pooling."""

from __future__ import annotations

from pathlib import Path

from sumpool.report.section import Section, seeds_label
from sumpool.report.tables import Table
from sumpool.studies.averaging.figures import (
    MOST_CLASSES,
    SHORT,
    draw_cover,
    draw_hulls,
    draw_images,
    shown_rows,
)
from sumpool.studies.shared.reporting import Column, by_label, images_label, seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

_ERRORS: dict[str, Column] = {
    "pooled_map_at_r": ("MAP@R [%]", 1, 100.0),
    "combined_map_at_r": ("MAP@R by PCC [%]", 1, 100.0),
    "foreground_weight": ("weight on the letter [%]", 0, 100.0),
    "delta": ("δ", 3, 1.0),
    "distance_mean": ("mean distance", 3, 1.0),
    "error_mean": ("error, mean", 3, 1.0),
    "error_max": ("error, largest", 3, 1.0),
    "squared_error_max": ("squared, largest", 4, 1.0),
    "bound_holds": ("within bound [%]", 1, 100.0),
}
_HULLS: dict[str, Column] = {
    "active_prototypes_mean": ("active", 1, 1.0),
    "shared_prototypes": ("shared [%]", 0, 100.0),
    "overlap_mean": ("overlap [%]", 1, 100.0),
    "overlapping_pairs": ("pairs [%]", 1, 100.0),
    "main_prototypes_mean": ("main", 1, 1.0),
    "main_shared_prototypes": ("main shared [%]", 0, 100.0),
    "main_overlap_mean": ("main overlap [%]", 1, 100.0),
    "embedding_overlap_mean": ("embeddings overlap [%]", 1, 100.0),
    "embedding_overlapping_pairs": ("embeddings pairs [%]", 1, 100.0),
    "inside_others": ("images inside others [%]", 1, 100.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate errors with their bound, and class hulls."""
    seeds, settings = seeds_label(rows), rows[0].settings
    groups = by_label(rows, "pool", SHORT)
    return [
        seeds_table(
            "pooling",
            groups,
            _ERRORS,
            "Pooled by local features against pooled by the nearest of "
            f"{settings['prototypes']} prototypes, in the unit ball; {seeds}",
        ),
        seeds_table(
            "pooling",
            groups,
            _HULLS,
            "Hulls of the classes: of the prototypes they use, of those with more than "
            f"{settings['main_share']:.0%} of the weight, and of their embeddings; {seeds}",
        ),
    ]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and, for the first seed, cover, images and class hulls."""
    settings = rows[0].settings
    shown = shown_rows(rows)
    figures = {}
    if shown:
        cover, hulls = draw_cover(folder, shown), draw_hulls(folder, shown)
        images = draw_images(folder, shown[0])
        figures = {
            "Local features in the plane by class and by nearest prototype, with the prototypes "
            "and discs of the covering radius around them.": cover,
            "Images, and below each its local features, the prototypes these use, and the two "
            "embeddings, which are nearer to each other than the covering radius.": images,
            "Hulls of the classes, spanned by the prototypes they use and by embeddings.": hulls,
        }
    return study_section(
        rows,
        title="What average pooling does",
        question=(
            "Replace every local feature by the nearest of a few prototypes, and average pooling "
            "becomes a convex combination of prototypes, with a histogram as coefficients. How far "
            "is the one from the other, and which prototypes do classes share? Trained on "
            f"{images_label(settings['data'])} with two-dimensional local features."
        ),
        tables=tables(rows),
        figures=figures,
        dpi=130,
        notes=[
            f"Local features of {settings['images']} test images per class are divided by the "
            f"length of the longest; {settings['prototypes']} of them are picked as prototypes by "
            "greedy k-center. δ is the largest distance of a local feature to its nearest "
            "prototype. Error: distance between the pooled local features of an image and its "
            "convex combination of prototypes (PCC). Within bound: error ≤ mean distance of its "
            "local features to their prototypes ≤ δ, which holds by the triangle inequality. With "
            "GSP all three are weighted by its pooling weights.",
            "Active: prototypes that are the nearest of at least one local feature of a class. "
            "Shared: active in two classes or more, of all prototypes. Overlap: area that two "
            "hulls have in common, of the smaller one, mean over pairs of classes. Pairs: those "
            f"that overlap at all. Main prototypes have more than {settings['main_share']:.0%} of "
            "the pooling weight of a class: a single local feature far off does not widen their "
            "hull.",
            "MAP@R is among those images, by their embeddings and by PCC in place of these. "
            "Training, validation and test images are of the same classes here: it is no zero-shot "
            f"number. The figures show the first seed, and at most {MOST_CLASSES} classes.",
        ],
    )
