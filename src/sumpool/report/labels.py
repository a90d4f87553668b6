"""Names and conditions of cells, shared by tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sumpool.system.rows import Row

STAND_IN = (
    "The images are drawn ones that stand in for CIFAR-100: this is a smoke test, ignore the "
    "numbers."
)


def loss_name(row: Row) -> str:
    """Name a cell's loss.

    Example:
        >>> loss_name(Row("collage", {}, {"loss": "c2"}, {}, {}, 0.0, None))
        'C2'
    """
    return str(row.cell["loss"]).upper()


def rate_name(rate: float) -> str:
    """Format a learning rate.

    Example:
        >>> rate_name(0.001), rate_name(0.00025)
        ('1e-3', '2.5e-4')
    """
    return np.format_float_scientific(rate, trim="-", exp_digits=1)


def losses_and_rates(rows: Iterable[Row]) -> list[tuple[str, float]]:
    """Return the pairs of loss and learning rate that occur, losses by name, higher rates first."""
    pairs = {(loss_name(row), float(row.cell["lr"])) for row in rows}
    return sorted(pairs, key=lambda pair: (pair[0], -pair[1]))


def trained_with(row: Row) -> tuple[str, float]:
    """Return the loss and learning rate of a cell."""
    return loss_name(row), float(row.cell["lr"])


def losses(rows: Iterable[Row]) -> list[str]:
    """Return the losses that occur, by name."""
    return sorted({loss_name(row) for row in rows})


def in_given_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Return each name once: first those in ``order``, then the others as they come.

    Cells that run in parallel are stored in the order they finish, which has no meaning.
    """
    found = list(dict.fromkeys(names))
    return [*(name for name in order if name in found), *(it for it in found if it not in order)]


def conditions(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on shared settings."""
    config = settings.get("config")
    plain = {**settings, **(config if isinstance(config, Mapping) else {})}
    listed = ", ".join(
        f"{name.replace('_', ' ')} {value:g}"
        if type(value) is float
        else f"{name.replace('_', ' ')} {value}"
        for name, value in plain.items()
        if isinstance(value, str | int | float)
    )
    notes = [f"All runs share: {listed}."] if listed else []
    return [STAND_IN, *notes] if settings.get("data") == "stand-in" else notes


def on_collages(settings: Mapping[str, Any]) -> bool:
    """Whether the images are collages of a foreground and three background tiles."""
    return settings.get("data") != "CUB"


def dataset_label(settings: Mapping[str, Any]) -> str:
    """Return the name of the data."""
    if not on_collages(settings):
        return "CUB-200-2011"
    known = {"CIFAR-100": "collages of CIFAR-100", "glyphs": "collages of letters and digits"}
    return known.get(str(settings.get("data")), "drawn collages")


def evaluated_on(settings: Mapping[str, Any]) -> str:
    """Return what scores are measured on: "test" or "validation".

    Example:
        >>> evaluated_on({"data": "glyphs"})
        'test'
    """
    return str(settings.get("evaluated_on", "test"))
