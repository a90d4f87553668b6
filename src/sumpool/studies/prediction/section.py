"""The study of zero-shot prediction on a page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from sumpool.report.labels import conditions
from sumpool.report.section import (
    Section,
    grouped,
    over_seeds,
    provenance,
    render_png,
    seeds_in_words,
    values,
)
from sumpool.report.tables import Table
from sumpool.studies.prediction.figures import (
    draw_histograms,
    draw_maps,
    shown_rows,
    variant,
    variant_name,
)
from sumpool.system.rows import Row


def tables(rows: list[Row]) -> list[Table]:
    """Accuracies with chance below them, and what the models are like."""
    variants = grouped(rows, variant)
    found = {variant_name(key): variants[key] for key in sorted(variants)}
    settings = rows[0].settings
    return [_accuracies(rows, found, settings["small_ridge"]), _models(rows, found)]


def _accuracies(rows: list[Row], found: Mapping[str, list[Row]], small_ridge: float) -> Table:
    lines = [
        [
            name,
            over_seeds(own, "accuracy_l2", 1, 100),
            _over_splits(own, "accuracy_l2_std"),
            over_seeds(own, "accuracy_cosine", 1, 100),
            _over_splits(own, "accuracy_cosine_std"),
            over_seeds(own, "accuracy_l2_small_ridge", 1, 100),
            over_seeds(own, "accuracy_cosine_small_ridge", 1, 100),
        ]
        for name, own in found.items()
    ]
    chance = over_seeds(rows[:1], "chance", 1, 100)
    lines.append(["chance", chance, "", chance, "", chance, chance])
    header = (
        "training",
        "ℓ2 [%]",
        "± over splits",
        "cosine [%]",
        "± over splits",
        f"ℓ2, ridge {small_ridge:g} [%]",
        f"cosine, ridge {small_ridge:g} [%]",
    )
    caption = (
        f"How much of half of {_classes(rows)} a map tells apart that was fitted on the other "
        f"half, {rows[0].settings['splits']} splits; {seeds_in_words(rows)}"
    )
    return Table(header, lines, caption)


def _models(rows: list[Row], found: Mapping[str, list[Row]]) -> Table:
    lines = [
        [
            name,
            over_seeds(own, "attribute_perplexity", 2),
            over_seeds(own, "class_perplexity", 2),
            over_seeds(own, "map_at_r", 1, 100),
            over_seeds(own, "precision_at_1", 1, 100),
            over_seeds(own, "best_step", 0),
        ]
        for name, own in found.items()
    ]
    header = (
        "training",
        "attributes in use",
        "in use of a class",
        "MAP@R [%]",
        "P@1 [%]",
        "best step",
    )
    return Table(header, lines, f"The models on the test images; {seeds_in_words(rows)}")


def section(folder: Path, rows: list[Row]) -> Section:
    """The study on a page."""
    settings = rows[0].settings
    shown = shown_rows(rows)
    pictures = []
    if shown:
        pictures = [
            render_png(
                partial(draw_histograms, folder, shown),
                "Share of each prototype in the attributes of each class, without and with the "
                "zero-shot loss.",
            ),
            render_png(
                partial(draw_maps, folder, shown),
                "Test images, and below them each position in the colour of the prototype that "
                "takes most of it, without and with the zero-shot loss.",
            ),
        ]
    return Section(
        title="Predicting classes from attributes",
        question=(
            f"{settings['prototypes']} prototypes give every image a histogram of attributes. The "
            "zero-shot loss wants these to say what a class looks like: a linear map from "
            "histograms to embeddings that is fitted on some classes should hold for others. On "
            f"{_classes(rows)}, does it?"
        ),
        tables=tables(rows),
        pictures=pictures,
        notes=[
            "Of every class, the mean histogram and the mean embedding of its test images are "
            "taken. A ridge fit from one to the other on half of the classes predicts the mean "
            "embeddings of the rest; a prediction is right if the nearest true mean among those is "
            "that of its class. ± over splits is the standard deviation of one split's accuracy, "
            f"mean over seeds. The fit has the ridge of the zero-shot loss, {settings['ridge']:g}, "
            f"which hides differences between histograms that are small against it; the last two "
            f"columns have {settings['small_ridge']:g}.",
            "Attributes in use: exp of the entropy of the mean histogram of all test images, at "
            f"most {settings['prototypes']}; of a class: the same for its own histogram, mean over "
            "classes. Both alike and at their most: the attributes of all classes are the same.",
            "Training, validation and test images are of the same classes here: MAP@R and P@1 are "
            "no zero-shot numbers. The figures show the first seed.",
            *conditions(settings),
        ],
        provenance=provenance(rows),
    )


def _classes(rows: list[Row]) -> str:
    data = rows[0].settings["data"]
    return {
        "CIFAR-10": "the classes of CIFAR-10",
        "CIFAR-100": "the super-classes of CIFAR-100",
        "stand-in": "drawn super-classes",
    }.get(data, str(data))


def _over_splits(rows: list[Row], name: str) -> str:
    found = values(rows, name)
    return f"{100 * sum(found) / len(found):.1f}"
