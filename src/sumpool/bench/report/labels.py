"""Names and order of data sets, losses, networks and methods in tables and figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sumpool.bench.methods import AVERAGES, Method

#: Data sets in the order of the papers' tables, then those without a paper.
DATA_SETS = {
    "sop": "SOP",
    "inshop": "In-shop",
    "cub": "CUB",
    "cars196": "Cars196",
    "cub-clutter": "CUB with clutter",
}
#: Losses in the order of the papers' tables.
LOSSES = {
    "c1": "C1",
    "c2": "C2",
    "ms": "MS",
    "triplet": "Triplet",
    "pnca": "PNCA",
    "panchor": "PAnchor",
    "softtriple": "SoftTriple",
    "margin": "Margin",
    "libc": "LIBC",
}
#: The metrics of the papers' tables.
METRICS = {"precision_at_1": "P@1", "mean_average_precision_at_r": "MAP@R"}
#: Names of networks in the papers.
BACKBONES = {
    "bn_inception": "BN-Inception",
    "resnet50": "ResNet-50",
    "tf_efficientnet_lite0": "EfficientNet-Lite0",
}
#: Description of each protocol, which must accompany its numbers.
PROTOCOLS = {
    "fair": "fair protocol",
    "conventional": "conventional protocol, selected on the test set",
    "tuning": "tuning protocol, on validation classes",
    "tuning-ccp": "tuning protocol of CCP, on validation classes",
    "steady": "steady protocol",
    "steady-tuning": "steady protocol, on validation classes",
    "libc": "setting of LIBC, selected on the test set",
    "skewed-means": "setting of the center regularizers, selected on the test set",
}
_POOLINGS = {"gemean": "GeMean", "gemax": "GeMax", "crow": "CroW", "delf": "DeLF", "gsop": "GSoP",
             "netvlad": "NetVLAD", "compact-bilinear": "compact bilinear", "simpool": "SimPool",
             "attention": "attention", "boq": "BoQ",
             "efficient-probing": "efficient probing"}  # fmt: skip
#: Prefix of the part of a note that lists the options that were set.
_SET = "set "
#: Constants of methods: a part of a label, and the prefix of the options that belong to it.
_CONSTANTS = (
    ("gsp", "gsp."),
    ("zs", "zero_shot."),
    ("ccp", "ccp."),
    ("reg", "center."),
    ("", "loss_options"),
    ("", "pool_options"),
)


def data_set_name(key: str) -> str:
    """Return the name of a data set in the papers."""
    return DATA_SETS.get(key, key)


def loss_name(key: str) -> str:
    """Return the name of a loss in the papers."""
    return LOSSES.get(key, key)


def backbone_name(key: str) -> str:
    """Return the name of a network in the papers."""
    return BACKBONES.get(key, key)


def metric_name(key: str) -> str:
    """Return the short name of a metric.

    Example:
        >>> metric_name("precision_at_1"), metric_name("recall_at_4"), metric_name("r_precision")
        ('P@1', 'R@4', 'P@R')
    """
    return METRICS.get(key) or key.replace("recall_at_", "R@").replace("r_precision", "P@R")


def protocol_name(key: str) -> str:
    """Return the description of a protocol that must accompany its numbers."""
    return PROTOCOLS.get(key, f"{key} protocol")


def method_name(label: str) -> str:
    """Return the name of a method, from its label.

    Example:
        >>> method_name("gsp+zs"), method_name("ccp+gap"), method_name("xbm+gmp+gsp+zs")
        ('GSP + ZS', 'CCP + GAP', 'XBM + GMP + GSP + ZS')
        >>> method_name("gemean+reg:r1")
        'GeMean + r1'
    """
    words = []
    for part in label.split("+"):
        name = part.removeprefix("reg:")
        words.append(name if name != part else _POOLINGS.get(part, part.upper()))
    return " + ".join(words)


def method_place(label: str) -> tuple[bool, bool, int, bool, str]:
    """Sort key of a method, as in the papers' tables: average pooling first, CCP last."""
    method = Method.parse(label)
    average = AVERAGES.index(method.pool) if method.pool in AVERAGES else len(AVERAGES)
    return method.ccp, method.xbm, average, "gsp" in method.pool, label


def loss_place(key: str) -> tuple[int, str]:
    """Sort key of a loss: order of the papers' tables, then others by name."""
    return _place(key, LOSSES)


def data_set_place(key: str) -> tuple[int, str]:
    """Sort key of a data set: order of the papers' tables, then others by name."""
    return _place(key, DATA_SETS)


def metric_place(key: str) -> tuple[int, str]:
    """Sort key of a metric: order of the papers' tables, then others by name."""
    return _place(key, METRICS)


def _place(key: str, known: Iterable[str]) -> tuple[int, str]:
    order = list(known)
    return (order.index(key), "") if key in order else (len(order), key)


def note_words(note: str) -> list[str]:
    """Split a score's note into its parts.

    Example:
        >>> note_words("selected on the test set, best of 3; set gsp.mu=1, seed=2; 2 seeds")
        ['selected on the test set', 'best of 3', 'set gsp.mu=1, seed=2', '2 seeds']
    """
    words: list[str] = []
    for part in note.split("; "):
        words += [part] if part.startswith(_SET) else part.split(", ")
    return [word for word in words if word]


def common_words(notes: Iterable[str]) -> list[str]:
    """Return the parts that all notes share: captions show these, row names the others.

    Example:
        >>> common_words(["set seed=2; 2 seeds", "2 seeds"])
        ['2 seeds']
    """
    words = [note_words(note) for note in notes]
    return [word for word in words[0] if all(word in it for it in words)] if words else []


def set_options(note: str) -> str:
    """Return the part of a note that lists the options that were set.

    Example:
        >>> set_options("best of 3; set gsp.mu=1, seed=2; 2 seeds")
        'set gsp.mu=1, seed=2'
    """
    return next((word for word in note_words(note) if word.startswith(_SET)), "")


def method_settings(note: str, method: str) -> str:
    """Return the constants of the method that a note lists, in the form of published settings.

    Training options, such as the precision, and constants of parts that the method does not have
    are omitted.

    Example:
        >>> method_settings("set weights=w.pth, gsp.mu=1, ccp.candidates=9", "gsp-keys+zs")
        'gsp.mu=1'
    """
    parts = [re.split("[:-]", part)[0] for part in method.split("+")]
    groups = tuple(group for part, group in _CONSTANTS if part in ("", *parts))
    return " ".join(it for it in _listed(note) if it.startswith(groups))


def training_options(note: str) -> list[str]:
    """Return the options that a note lists and that are no constants of methods.

    Example:
        >>> training_options("set weights=w.pth, gsp.mu=1, ccp.candidates=9")
        ['weights=w.pth']
    """
    groups = tuple(group for _, group in _CONSTANTS)
    return [it for it in _listed(note) if not it.startswith(groups)]


def _listed(note: str) -> list[str]:
    text = set_options(note).removeprefix(_SET)
    return re.split(r", (?=[a-z_]+[a-z_.]*=)", text) if text else []


def caption_prefix(protocol: str, backbone: str) -> str:
    """Return the start of a caption.

    Example:
        >>> caption_prefix("conventional", "resnet50")
        'Conventional protocol, selected on the test set; ResNet-50'
    """
    words = protocol_name(protocol)
    return f"{words[0].upper()}{words[1:]}; {backbone_name(backbone)}"


def percent(mean: float, std: float | None) -> str:
    """Format a share in percent, with its spread if given, to two decimals as in the papers.

    Example:
        >>> percent(0.2712, 0.0027), percent(0.2712, None)
        ('27.12 ± 0.27', '27.12')
    """
    spread = "" if std is None else f" ± {100 * std:.2f}"
    return f"{100 * mean:.2f}{spread}"


def signed(share: float) -> str:
    """Format a difference in percentage points, with its sign.

    Example:
        >>> signed(0.0095), signed(-0.0117), signed(-1e-9)
        ('+0.95', '−1.17', '0.00')
    """
    # A minus sign as wide as the plus sign; a difference that rounds to zero has no sign.
    text = f"{100 * share:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
