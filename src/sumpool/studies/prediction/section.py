"""Report section on zero-shot prediction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from sumpool.report.section import Section, grouped, over_seeds, seeds_label, values
from sumpool.report.tables import Table
from sumpool.studies.prediction.figures import (
    draw_histograms,
    draw_maps,
    shown_rows,
    variant,
    variant_name,
)
from sumpool.studies.shared.reporting import Column, images_label, seeds_table
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

_MODELS: dict[str, Column] = {
    "attribute_perplexity": ("attributes in use", 2, 1.0),
    "class_perplexity": ("in use of a class", 2, 1.0),
    "map_at_r": ("MAP@R [%]", 1, 100.0),
    "precision_at_1": ("P@1 [%]", 1, 100.0),
    "best_step": ("best step", 0, 1.0),
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate accuracies, with chance in the last row, and metrics of the models."""
    variants = grouped(rows, variant)
    found = {variant_name(key): variants[key] for key in sorted(variants)}
    caption = f"The models on the test images; {seeds_label(rows)}"
    return [_accuracies(rows, found), seeds_table("training", found, _MODELS, caption)]


def _accuracies(rows: list[Row], found: Mapping[str, list[Row]]) -> Table:
    settings = rows[0].settings
    accuracies = (
        "accuracy_l2",
        "accuracy_cosine",
        "accuracy_l2_small_ridge",
        "accuracy_cosine_small_ridge",
    )
    lines = []
    for name, own in found.items():
        l2, cosine, *free = (over_seeds(own, accuracy, 1, 100) for accuracy in accuracies)
        spread_l2, spread_cosine = (
            f"{100 * fmean(values(own, f'{accuracy}_std')):.1f}" for accuracy in accuracies[:2]
        )
        lines.append([name, l2, spread_l2, cosine, spread_cosine, *free])
    chance = over_seeds(rows[:1], "chance", 1, 100)
    lines.append(["chance", chance, "", chance, "", chance, chance])
    header = ["training", "ℓ2 [%]", "± over splits", "cosine [%]", "± over splits"]
    header += [f"{it}, ridge {settings['small_ridge']:g} [%]" for it in ("ℓ2", "cosine")]
    if all("mean_precision_l2" in row.metrics for row in rows):  # rows of 0.1.0 lack it
        header += ["MAP, ℓ2 [%]", "MAP, cosine [%]"]
        for line, own in zip(lines, found.values(), strict=False):
            line += [over_seeds(own, f"mean_precision_{it}", 1, 100) for it in ("l2", "cosine")]
        count = round(1 / rows[0].metrics["chance"])
        random = f"{100 * sum(1 / rank for rank in range(1, count + 1)) / count:.1f}"
        lines[-1] += [random, random]
    caption = (
        f"How much of half of {images_label(settings['data'])} a map tells apart that was fitted "
        f"on the other half, {settings['splits']} splits; {seeds_label(rows)}"
    )
    return Table(header, lines, caption)


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and, for the first seed, attributes by class and by position."""
    settings = rows[0].settings
    shown = shown_rows(rows)
    figures = {}
    if shown:
        figures = {
            "Share of each prototype in the attributes of each class, without and with the "
            "zero-shot loss.": draw_histograms(folder, shown),
            "Test images, and below them each position in the color of the prototype that "
            "takes most of it, without and with the zero-shot loss.": draw_maps(folder, shown),
        }
    return study_section(
        rows,
        title="Predicting classes from attributes",
        question=(
            f"{settings['prototypes']} prototypes give every image a histogram of attributes. The "
            "zero-shot loss wants these to say what a class looks like: a linear map from "
            "histograms to embeddings that is fitted on some classes should hold for others. On "
            f"{images_label(settings['data'])}, does it?"
        ),
        tables=tables(rows),
        figures=figures,
        notes=[
            "Of every class, the mean histogram and the mean embedding of its test images are "
            "taken. A ridge fit from one to the other on half of the classes predicts the mean "
            "embeddings of the rest; a prediction is right if the nearest true mean among those is "
            "that of its class. ± over splits is the standard deviation of one split's accuracy, "
            f"mean over seeds. The fit has the ridge of the zero-shot loss, {settings['ridge']:g}, "
            f"which hides differences between histograms that are small against it; two columns "
            f"have {settings['small_ridge']:g}. MAP: mean of 1/rank of the true mean, as in the "
            "paper.",
            "Attributes in use: exp of the entropy of the mean histogram of all test images, at "
            f"most {settings['prototypes']}; of a class: the same for its own histogram, mean over "
            "classes. Both alike and at their most: the attributes of all classes are the same.",
            "Training, validation and test images are of the same classes here: MAP@R and P@1 are "
            "no zero-shot numbers. The figures show the first seed.",
        ],
    )
