"""Models in files: tensors as safetensors, everything else as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.config import EmbedderConfig
from sumpool.models.embedder import Embedder, build_embedder
from sumpool.models.errors import ModelError
from sumpool.models.weights import DIGEST, load_state, read_safetensors, tensors_digest
from sumpool.system.files import StoreError, write_atomic

#: Number of the format written; files with a higher one are refused.
FORMAT = 1
#: Names of the two files in a model's folder.
TENSORS, DESCRIPTION = "model.safetensors", "model.json"

#: Key under which the tensors' file of an earlier version says which description it belongs to.
#: Now that follows the digest of the tensors: safetensors writes several keys in any order.
_BELONGS = "description_sha256"


def save_embedder(model: Embedder, folder: str | Path) -> None:
    """Write ``model`` into ``folder``, as model.safetensors and model.json.

    Each file is written completely or not at all. A folder with only one of them replaced is
    recognized when it is loaded.

    Args:
        model: The model itself, not a wrapper around it.
        folder: Made where it is not there; a model in it is replaced.

    Raises:
        TypeError: If ``model`` is not an :class:`Embedder`.
        ModelError: If a file cannot be written; what was there before stays.
    """
    if not isinstance(model, Embedder):
        raise TypeError(
            f"model must be an Embedder, got {type(model).__name__}: pass what a wrapper wraps"
        )
    description = {
        "format": FORMAT,
        "sumpool": version("sumpool"),
        "config": model.config.to_dict(),
        "preprocessing": model.preprocessing.to_dict(),
        "seed": model.seed,
    }
    text = (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode()
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    tensors = save(state, {DIGEST: f"{tensors_digest(state)} {hashlib.sha256(text).hexdigest()}"})
    try:
        write_atomic(Path(folder) / TENSORS, tensors)
        write_atomic(Path(folder) / DESCRIPTION, text)
    except StoreError as error:
        raise ModelError(str(error)) from error


def load_embedder(folder: str | Path, device: torch.device | str = "cpu") -> Embedder:
    """The model that :func:`save_embedder` wrote, in evaluation mode.

    Nothing in the files is executed, and neither a network nor packaged weights are needed.

    Args:
        folder: Folder with model.safetensors and model.json.
        device: Where to put it.

    Raises:
        ModelError: If a file is missing, damaged, written by a newer version, or does not describe
            a model that can be built; the message names the file and the defect.

    Example:
        >>> import tempfile
        >>> from sumpool.models import build_embedder
        >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16)).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_embedder(model, folder)
        ...     loaded = load_embedder(folder)
        >>> images = torch.rand(2, 3, 32, 32)
        >>> torch.equal(loaded(images), model(images))
        True
    """
    described, tensors = Path(folder) / DESCRIPTION, Path(folder) / TENSORS
    text = _read(described)
    description = _parse(described, text)
    try:
        config = EmbedderConfig.from_dict(description["config"])
        preprocessing = Preprocessing.from_dict(description["preprocessing"])
        model = build_embedder(config, seed=description["seed"], weights="none")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ModelError(f"{described} describes no model that can be built: {error}") from error
    model.preprocessing = preprocessing
    state, belongs = _read_tensors(tensors)
    if belongs != hashlib.sha256(text).hexdigest():
        raise ModelError(
            f"{tensors} was not saved together with {DESCRIPTION} beside it: one of them was "
            "changed or replaced"
        )
    if "map.weight" in state:
        model.to(state["map.weight"].dtype)  # a model in half precision comes back in it
    load_state(model, state, source=str(tensors), exact=True)
    return model.to(device).eval()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(path: Path, text: bytes) -> Mapping[str, Any]:
    try:
        description = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(description, dict):
        raise ModelError(f"{path} must hold a JSON object, got {type(description).__name__}")
    number = description.get("format")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ModelError(f"{path}: format must be a number from 1 to {FORMAT}, got {number!r}")
    if number > FORMAT:
        raise ModelError(
            f"{path} is of format {number}, written by sumpool {description.get('sumpool')}; this "
            f"is version {version('sumpool')}, which reads formats up to {FORMAT}"
        )
    kinds = {"config": dict, "preprocessing": dict, "seed": int}
    wrong = [key for key, kind in kinds.items() if not isinstance(description.get(key), kind)]
    if wrong:
        raise ModelError(f"{path}: {', '.join(wrong)} missing or of the wrong type")
    return description


def _read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    state, metadata = read_safetensors(path)
    return state, metadata.get(_BELONGS, metadata.get(DIGEST, "").partition(" ")[2])
