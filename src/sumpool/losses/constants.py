"""Constants of the losses, with their meanings and accepted values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sumpool.transport.validation import is_integer, is_number

#: Value of a constant: a number or the name of a reduction.
Value = float | str

#: Reductions of the terms of pairs. "nonzero-mean": the mean of the terms above 0 of positive pairs
#: plus that of negative pairs. "image-sum": the sum of all terms divided by the number of images in
#: the batch.
REDUCTIONS = ("nonzero-mean", "image-sum")


@dataclass(frozen=True)
class Constant:
    """A constant of one or several losses.

    Attributes:
        meaning: Description of the constant.
        accepted: Description of the accepted values.
        admits: Predicate, True for accepted values.
    """

    meaning: str
    accepted: str
    admits: Callable[[Value], bool]


def _number(value: Value) -> bool:
    return is_number(value) and math.isfinite(value)


def _any(meaning: str) -> Constant:
    return Constant(meaning, "a finite number", _number)


def _positive(meaning: str) -> Constant:
    return Constant(meaning, "a positive number", lambda it: _number(it) and float(it) > 0)


def _not_negative(meaning: str) -> Constant:
    return Constant(meaning, "a number of at least 0", lambda it: _number(it) and float(it) >= 0)


def _share(meaning: str) -> Constant:
    return Constant(meaning, "a number in [0, 1)", lambda it: _number(it) and 0 <= float(it) < 1)


def _count(meaning: str, least: int) -> Constant:
    return Constant(
        meaning,
        f"an integer of at least {least}",
        lambda it: is_integer(it) and it >= least,
    )


#: The constants by name.
CONSTANTS: Mapping[str, Constant] = {
    "margin": _any("margin δ on similarities or distances"),
    "pos_margin": _any("m⁺, distance up to which positive pairs cost nothing"),
    "neg_margin": _any("m⁻, distance from which negative pairs cost nothing"),
    "reduction": Constant(
        "reduction of the terms of pairs to one number",
        " or ".join(map(repr, REDUCTIONS)),
        lambda it: it in REDUCTIONS,
    ),
    "alpha": _positive(
        "α, sharpness for positive pairs (ProxyAnchor: for all); margin loss: margin"
    ),
    "beta": _positive("β, sharpness for negative pairs; margin loss: initial boundaries"),
    "nu": _not_negative("ν, weight of the boundaries of the margin loss"),
    "base": _any("λ of multi-similarity, threshold that similarities are compared with"),
    "temperature": _positive("T, divisor of the cosines (LIBC: of the logits)"),
    "softmax_scale": _positive("factor of the squared distances"),
    "la": _positive("λ of SoftTriple, factor of the similarities to classes"),
    "gamma": _positive("γ: SoftTriple's softness among the centers of a class; scale of circle"),
    "reg_weight": _not_negative("τ, weight of the distances among the centers of a class"),
    "centers_per_class": _count("K, centers per class", 1),
    "memory_batches": _count("batches in the memory", 1),
    "start_step": _count("steps with the base loss alone before the memory is used", 0),
    "batch_weight": _not_negative("weight of the pairs within the batch, once the memory is used"),
    "memory_weight": _not_negative("weight of the pairs between batch and memory"),
    "layers": _count("layers of the graph", 1),
    "heads": _count("heads of its attention; must divide the embedding size", 1),
    "label_smoothing": _share("share of each label that is spread evenly over all classes"),
    "dropout": _share("share of messages, hidden units and attention weights that are dropped"),
}


def check_constant(loss: str, name: str, value: Value) -> None:
    """Raise a ValueError unless the constant ``name`` accepts ``value``; others accept any."""
    constant = CONSTANTS.get(name)
    if constant is not None and not constant.admits(value):
        raise ValueError(f"{name} of {loss} must be {constant.accepted}, got {value!r}")
