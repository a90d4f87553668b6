"""Models by the folder they are in: that of a run, or their own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError
from sumpool.models.pretrained import is_pretrained, pretrained_embedder
from sumpool.models.storage import DESCRIPTION, load_embedder
from sumpool.models.weights import load_state
from sumpool.report.run.folder import MODEL, RUN


def load(folder: str | Path, device: torch.device | str = "cpu") -> Embedder:
    """The model of a run, a saved model, or "pretrained", in evaluation mode.

    Args:
        folder: Folder of a run, or one that :func:`save_embedder` wrote. "pretrained", unless there
            is a folder of that name, is the packaged network as it is: the mean of its last map.
        device: Where to put it.

    Raises:
        ModelError: If there is no model in ``folder``, or it cannot be loaded; the message names
            the file and the defect.
    """
    if is_pretrained(folder):
        return pretrained_embedder().to(device)
    return load_embedder(model_folder(folder), device)


def start_from(model: Embedder, source: Embedder) -> str:
    """Copy weights of ``source`` into ``model``: the backbone, and map and pooling if they fit.

    A pooling is taken only together with the map, behind which its prototypes lie.

    Returns:
        What was taken and what is new, in words.

    Raises:
        ModelError: If the backbones differ.
    """
    load_state(
        model.backbone,
        source.backbone.state_dict(),
        source=f"the model of {source.config.backbone}",
    )
    taken: list[str] = ["backbone"]
    new: list[str] = []
    for name in ("map", "pooling"):
        own, other = getattr(model, name), getattr(source, name)
        why = _misfit(own.state_dict(), other.state_dict())
        if name == "pooling" and new:
            why = "the map is new"
        if type(own) is not type(other):
            why = f"{type(other).__name__} in the source"
        if why:
            new.append(f"{name} ({why})")
        elif own.state_dict():
            own.load_state_dict(other.state_dict())
            taken.append(name)
    return f"taken: {', '.join(taken)}; new: {', '.join(new) or 'nothing'}"


def _misfit(own: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str:
    """The first tensor of ``own`` that ``other`` has no counterpart of the same shape for."""
    for name in (*own, *other):
        if name not in own or name not in other:
            return f"{name} only in one"
        if own[name].shape != other[name].shape:
            return f"{name} is {tuple(own[name].shape)}, was {tuple(other[name].shape)}"
    return ""


def model_folder(folder: str | Path) -> Path:
    """Where the model of a run is, or ``folder`` itself.

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
