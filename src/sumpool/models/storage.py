"""Files of models: tensors as safetensors, everything else as JSON."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.config import EmbedderConfig
from sumpool.models.errors import ModelError
from sumpool.models.weights import DIGEST, load_state, read_safetensors, tensors_digest
from sumpool.report.run.folder import MODEL, RUN
from sumpool.system.files import StoreError, write_atomic

#: Version of the format written; files with a higher one are rejected.
FORMAT = 1
#: Names of the two files in a model's folder.
TENSORS, DESCRIPTION = "model.safetensors", "model.json"

#: Key of the description's digest in tensor files of earlier versions. It now follows the tensors'
#: digest under one key, because safetensors writes several keys in arbitrary order.
_BELONGS = "description_sha256"


Network = TypeVar("Network", bound=nn.Module)


def write_model(
    folder: str | Path,
    config: EmbedderConfig,
    preprocessing: Preprocessing,
    seed: int,
    state: Mapping[str, torch.Tensor],
) -> None:
    """Write a model to ``folder`` as model.safetensors and model.json.

    Each file is written completely or not at all; if only one of them was replaced, reading detects
    the mismatch.

    Raises:
        ModelError: If a file cannot be written; its previous version is kept.
    """
    description = {
        "format": FORMAT,
        "sumpool": version("sumpool"),
        "config": config.to_dict(),
        "preprocessing": preprocessing.to_dict(),
        "seed": seed,
    }
    text = (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode()
    own = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    tensors = save(own, {DIGEST: f"{tensors_digest(own)} {hashlib.sha256(text).hexdigest()}"})
    try:
        write_atomic(Path(folder) / TENSORS, tensors)
        write_atomic(Path(folder) / DESCRIPTION, text)
    except StoreError as error:
        raise ModelError(str(error)) from error


def read_model(folder: str | Path, build: Callable[[EmbedderConfig, int], Network]) -> Network:
    """Read a model written by :func:`write_model`, in evaluation mode.

    Nothing in the files is executed, and neither network access nor packaged weights are needed.

    Args:
        folder: Folder with model.safetensors and model.json.
        build: Builds the model from a configuration and a seed, without loading weights.

    Raises:
        ModelError: If a file is missing, damaged, written by a newer version, or does not describe
            a model that can be built; the message names the file and the defect.
    """
    described, tensors = Path(folder) / DESCRIPTION, Path(folder) / TENSORS
    text = _read(described)
    description = _parse(described, text)
    try:
        config = EmbedderConfig.from_dict(description["config"])
        preprocessing = Preprocessing.from_dict(description["preprocessing"])
        model = build(config, description["seed"])
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ModelError(f"{described} describes no model that can be built: {error}") from error
    model.preprocessing = preprocessing  # type: ignore[assignment]
    if not tensors.is_file():
        raise ModelError(f"{tensors}: there is no such file")
    state, metadata = read_safetensors(tensors)
    belongs = metadata.get(_BELONGS, metadata.get(DIGEST, "").partition(" ")[2])
    if belongs != hashlib.sha256(text).hexdigest():
        raise ModelError(
            f"{tensors} was not saved together with {DESCRIPTION} beside it: one of them was "
            "changed or replaced"
        )
    _follow_precision(model, state)
    load_state(model, state, source=str(tensors), exact=True)
    return model.eval()


def _follow_precision(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Convert a model to the precision of ``state``, or the parts that are stored in half."""
    kinds: dict[str, set[torch.dtype]] = {}
    for name, value in state.items():
        if value.is_floating_point():
            parts = name.split(".")
            for length in range(len(parts)):
                kinds.setdefault(".".join(parts[:length]), set()).add(value.dtype)
    half = {torch.float16, torch.bfloat16}
    for name, module in model.named_modules():
        own = kinds.get(name, set())
        if len(own) == 1 and (not name or own <= half):
            module.to(dtype=next(iter(own)))  # with the buffers that are not stored
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in state and state[name].dtype in half:
            tensor.data = tensor.data.to(state[name].dtype)


def model_folder(folder: str | Path) -> Path:
    """Return the model folder of a run, or ``folder`` itself.

    Raises:
        ModelError: If ``folder`` holds neither a run with a model nor a model.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}: name that of a run, or of a saved model")
    if (folder / MODEL).is_dir():
        return folder / MODEL
    if (folder / RUN).is_file():
        raise ModelError(
            f"the run {folder} has no model yet, it is not finished: resume it with "
            f"sumpool train --resume {shlex.quote(str(folder))}"
        )
    if not (folder / DESCRIPTION).is_file():
        raise ModelError(f"{folder} holds neither a run nor a model: {RUN}, {DESCRIPTION} missing")
    return folder


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
