"""Names that options accept, as plain data: a wrong one is refused before torch is imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from sumpool.training.config import ConfigError

#: Choices by option. A test compares them with the catalogs.
CHOICES: dict[str, tuple[str, ...]] = {
    "loss": (
        *("c1", "c2", "triplet", "ms", "panchor", "pnca", "softtriple", "xbm", "xbm-c2"),
        *("npair", "lifted", "proxynca", "circle", "margin", "libc"),
    ),
    "pool": (
        *("gap", "gmp", "gap+gmp", "cbam", "crow", "delf", "gemax", "gemean", "gsop", "otp"),
        *("solar", "t-smk", "netvlad", "weldon", "compact-bilinear"),
        *("simpool", "attention", "salad", "boq", "efficient-probing"),
        *("gsp", "gmp+gsp", "gemean+gsp", "gsp-heads", "gsp-keys", "gsp-parts"),
    ),
    "center_reg": (
        *("r1", "r1-distance", "r1-far", "r2", "r2-distance", "r2-far", "k-near", "k-far"),
        *("uniformface", "mhe"),
    ),
    "format": (
        *("auto", "cub", "cars196", "sop", "inshop", "cifar10", "cifar100", "mnist"),
        *("fashion-mnist", "cifar-collage", "cifar-foreground", "cub-clutter", "folder", "csv"),
        *("parquet", "glyphs"),
    ),
}
#: Backbones of this package; all others are timm's.
BACKBONES = ("bn_inception", "resnet20", "resnetv2_20", "resnet50_v1", "small_cnn")


def not_among(name: str, value: str, choices: Iterable[str]) -> str:
    """Return an error message that lists the choices and the closest one.

    >>> not_among("loss", "c4", ("c1", "ms"))
    "loss must be one of c1, ms, got 'c4': did you mean c1?"
    """
    choices = list(choices)
    close = difflib.get_close_matches(value, choices, 1, 0.5)
    hint = f": did you mean {close[0]}?" if close else ""
    return f"{name} must be one of {', '.join(choices)}, got {value!r}{hint}"


def check_choices(option: str, *values: str | None) -> None:
    """Refuse names that an option does not accept.

    Args:
        option: "backbone", or one of ``CHOICES``.
        values: Its values; None is always accepted.

    Raises:
        ConfigError: If a name is not accepted; lists the choices and the closest.
    """
    for value in values:
        if option != "backbone":
            if value is not None and value not in CHOICES[option]:
                raise ConfigError(not_among(option, value, CHOICES[option]))
        elif value is not None and value not in BACKBONES and not _timm_mentions(value):
            close = difflib.get_close_matches(value, [*BACKBONES, *timm_models()], 5)
            hint = f": did you mean {', '.join(close)}?" if close else ""
            raise ConfigError(
                f"backbone must be one of {', '.join(BACKBONES)} or a model of timm, got "
                f"{value!r}{hint}"
            )


def timm_models() -> list[str]:
    """Return the names of timm's models, read from its files: importing it takes seconds."""
    pattern = re.compile(r"^@register_model\ndef (\w+)\(", re.M)
    return [name for text in _timm_files() for name in pattern.findall(text)]


def _timm_mentions(name: str) -> bool:
    # Deprecated names are keys of tables in these files. timm itself has the last word.
    wanted = re.compile(rf"def {re.escape(name.partition('.')[0])}\(|'{re.escape(name)}'")
    return any(wanted.search(text) for text in _timm_files())


def _timm_files() -> Iterator[str]:
    spec = find_spec("timm")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder, "models").glob("*.py")):
            yield path.read_text(encoding="utf-8")
