"""The catalog as the tables of docs/losses.md show it; run this file to print them."""

from __future__ import annotations

from collections.abc import Sequence

from sumpool.losses import COLUMNS, CONSTANTS, DATASET_COLUMNS, LOSSES

TITLES = {"cub": "CUB", "cars196": "Cars196", "inshop": "In-shop", "sop": "SOP"}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


def constants_table() -> str:
    rows = []
    for name, recipe in LOSSES.items():
        for constant in recipe.table["cub"]:
            values = [cell(recipe.table[column][constant]) for column in COLUMNS]
            rows.append([f"`{name}`", f"`{constant}`", *values])
        if not recipe.table["cub"]:
            rows.append([f"`{name}`", "none", *["–"] * len(COLUMNS)])
    return markdown(["loss", "constant", *(TITLES[column] for column in COLUMNS)], rows)


def training_table() -> str:
    rows = [
        [
            f"`{name}`",
            f"{recipe.summary} [{recipe.reference}](references.md#{recipe.reference})",
            "yes" if recipe.proxy else "no",
            str(recipe.images_per_class),
            str(recipe.warmup_epochs),
            f"× {recipe.proxy_lr_multiplier:g}" if recipe.proxy else "–",
            ", ".join(f"{TITLES[it]} {rate:g}" for it, rate in recipe.learning_rates.items())
            or "the protocol's",
        ]
        for name, recipe in LOSSES.items()
    ]
    head = [
        "name",
        "loss",
        "proxies",
        "images per class",
        "warm-up epochs",
        "rate of proxies",
        "learning rate",
    ]
    return markdown(head, rows)


def meanings_table() -> str:
    rows = [[f"`{it}`", known.meaning, known.accepted] for it, known in CONSTANTS.items()]
    return markdown(["constant", "meaning", "accepted"], rows)


def columns_table() -> str:
    others: dict[str, list[str]] = {}
    for dataset, column in DATASET_COLUMNS.items():
        others.setdefault(column, []).append(f"`{dataset}`")
    return markdown(
        ["column", "holds for"], [[TITLES[it], ", ".join(others[it])] for it in COLUMNS]
    )


if __name__ == "__main__":
    for table in (training_table(), columns_table(), constants_table(), meanings_table()):
        print(table)  # noqa: T201
