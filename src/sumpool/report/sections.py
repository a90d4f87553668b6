"""What is said of each study: its table, its figures and the words around them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sumpool.report import token_figure, toy_figure
from sumpool.report.shell import Picture
from sumpool.report.store import Row, StoreError, read_rows
from sumpool.report.tables import Table, mean_and_spread
from sumpool.report.train_figures import score_picture


@dataclass(frozen=True)
class Section:
    """One study on a page.

    Attributes:
        title: Heading.
        question: What the study asks.
        table: The numbers, averaged over seeds.
        pictures: The figures.
        notes: How to read them, and under which conditions they hold.
        provenance: Command, seeds, versions and time.
    """

    title: str
    question: str
    table: Table
    pictures: Sequence[Picture]
    notes: Sequence[str]
    provenance: str


def section(folder: Path) -> Section:
    """The section of the study whose results are in ``folder``."""
    rows = _known_rows(folder)
    return SECTIONS[rows[0].study](folder, rows)


def table(folder: Path) -> Table:
    """The table of the study whose results are in ``folder``."""
    rows = _known_rows(folder)
    return TABLES[rows[0].study](rows)


def _known_rows(folder: Path) -> list[Row]:
    rows = read_rows(folder)
    if not rows:
        raise StoreError(f"{folder} holds no finished cell: run the study first")
    if rows[0].study not in SECTIONS:
        known = ", ".join(SECTIONS)
        raise StoreError(f"{folder} holds the study {rows[0].study!r}; a report knows {known}")
    return rows


def _toy_table(rows: list[Row]) -> Table:
    def name(row: Row) -> tuple[float, str]:
        method, mu = str(row.cell["method"]), float(row.cell["mu"])
        return (0.0, method) if method == "GAP" else (mu, f"{method}, μ = {mu:g}")

    lines = [
        [
            label,
            _over_seeds(own, "foreground_weight", 1, 100),
            _over_seeds(own, "covered", 1, 100),
            _over_seeds(own, "ignored", 1),
        ]
        for (_, label), own in sorted(_groups(rows, name).items())
    ]
    header = (
        "pooling",
        "weight on foreground [%]",
        "foreground covered [%]",
        f"foreground pixels ignored (of {_foreground(rows[0].settings)})",
    )
    return Table(header, lines, f"Toy map, {_seeds(rows)} of noise")


def _toy(folder: Path, rows: list[Row]) -> Section:
    settings = rows[0].settings
    side = int(settings["side"])
    share = _foreground(settings) / side**2
    return Section(
        title="Which pixels are pooled",
        question=(
            f"A {side}×{side} map holds a red and a blue block on green; red and blue are the "
            f"prototypes. The true share of the foreground is {share:g}. What happens if it is "
            "under-estimated?"
        ),
        table=_toy_table(rows),
        pictures=[
            _picture(
                partial(toy_figure.draw, folder),
                "The map, and the pooling weights of the hard problem, the smooth problem and "
                "average pooling as grey levels.",
            )
        ],
        notes=[
            "The hard problem P1 takes the nearest pixels until the share μ is used up and ignores "
            f"the rest of the foreground. The smooth problem P2 (ε = {settings['eps']:g}) spreads "
            "the same share over all of it. Average pooling weighs foreground and ground alike.",
            f"Covered: a weight of at least {settings['covered']:.0%} of the largest. "
            "Ignored: a weight of exactly 0. The figure shows the first seed.",
        ],
        provenance=_provenance(rows),
    )


def _token_table(rows: list[Row]) -> Table:
    alone = rows[0].study == "tokens"

    def name(row: Row) -> tuple[float, str]:
        margin, method = token_figure.margin_of(row), str(row.cell["method"])
        return margin, method if alone else f"{method}, m⁻ = {margin:g}"

    lines = [
        [
            label,
            _over_seeds(own, "map_at_r", 3),
            _over_seeds(own, "samples_inside_others", 1, 100),
            _over_seeds(own, "meeting_pairs", 1, 100),
            _over_seeds(own, "class_weight", 1, 100),
            _over_seeds(own, "best_epoch", 0),
        ]
        for (_, label), own in sorted(_groups(rows, name).items())
    ]
    header = (
        "pooling",
        "MAP@R",
        "samples in a foreign hull [%]",
        "class pairs whose token hulls meet [%]",
        "weight on class tokens [%]",
        "best epoch",
    )
    return Table(header, lines, f"Learned tokens, {_seeds(rows)}")


def _tokens(folder: Path, rows: list[Row]) -> Section:
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
        table=_token_table(rows),
        pictures=[
            _picture(
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
        provenance=_provenance(rows),
    )


def _glyph_methods(rows: list[Row]) -> dict[str, list[Row]]:
    # Sorted: cells that run side by side are stored in the order they finish.
    methods: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.cell["method"], row.cell["seed"])):
        methods.setdefault(str(row.cell["method"]), []).append(row)
    return methods


def _glyph_table(rows: list[Row]) -> Table:
    lines = [
        [
            method,
            _over_seeds(own, "map_at_r", 1, 100),
            _over_seeds(own, "precision_at_1", 1, 100),
            _over_seeds(own, "letter_weight", 1, 100),
            _over_seeds(own, "best_step", 0),
        ]
        for method, own in _glyph_methods(rows).items()
    ]
    header = ("pooling", "MAP@R [%]", "P@1 [%]", "weight on the letter [%]", "best step")
    return Table(header, lines, f"Letters that were never seen, {_seeds(rows)}")


def _glyphs(folder: Path, rows: list[Row]) -> Section:
    config = rows[0].settings["config"]
    return Section(
        title="A letter among digits",
        question=(
            "A collage shows one letter and three digits in four tiles. The class is the letter, "
            "the digits are background that all classes share. Does an embedding learned through "
            "each pooling tell letters apart that it has never seen?"
        ),
        table=_glyph_table(rows),
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
        provenance=_provenance(rows),
    )


#: The sections by the name of their study.
SECTIONS: Mapping[str, Callable[[Path, list[Row]], Section]] = {
    "glyphs": _glyphs,
    "toy": _toy,
    "tokens": _tokens,
    "margins": _tokens,
}
#: The tables by the name of their study.
TABLES: Mapping[str, Callable[[list[Row]], Table]] = {
    "glyphs": _glyph_table,
    "toy": _toy_table,
    "tokens": _token_table,
    "margins": _token_table,
}


def _picture(draw: Callable[[BinaryIO], None], alt: str) -> Picture:
    buffer = io.BytesIO()
    draw(buffer)
    return Picture(buffer.getvalue(), alt)


def _groups(
    rows: list[Row], name: Callable[[Row], tuple[float, str]]
) -> dict[tuple[float, str], list[Row]]:
    groups: dict[tuple[float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return groups


def _foreground(settings: Mapping[str, Any]) -> int:
    return 2 * int(settings["block"]) ** 2


def _over_seeds(rows: list[Row], name: str, digits: int, scale: float = 1.0) -> str:
    return mean_and_spread([float(row.metrics[name]) for row in rows], digits, scale)


def _seed_count(rows: list[Row]) -> int:
    return len({row.cell["seed"] for row in rows})


def _seeds(rows: list[Row]) -> str:
    count = _seed_count(rows)
    return "one seed" if count == 1 else f"mean ± standard deviation over {count} seeds"


def _provenance(rows: list[Row]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in rows[-1].versions.items())
    return f"sumpool study {rows[0].study} --seeds {_seed_count(rows)}; {versions}"
