"""Models by the folder they are in: that of a run, or their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sumpool.models.embedder import Embedder, read_embedder
from sumpool.models.pretrained import is_pretrained, pretrained_embedder
from sumpool.models.storage import write_model
from sumpool.models.weights import load_state


def load(folder: str | Path, device: torch.device | str = "cpu") -> Embedder:
    """The model of a run, a saved model, or "pretrained", in evaluation mode.

    Args:
        folder: Folder of a run, one that :func:`save_embedder` wrote, or "hf://organization/name"
            on the Hugging Face Hub. "pretrained", unless there is a folder of that name, is the
            packaged network as it is: the mean of its last map.
        device: Where to put it.

    Raises:
        ModelError: If there is no model in ``folder``, or it cannot be loaded; the message names
            the file and the defect.
    """
    if is_pretrained(folder):
        return pretrained_embedder().to(device)
    return Embedder.from_pretrained(folder, device)


def save_embedder(model: Embedder, folder: str | Path) -> None:
    """Write ``model`` into ``folder``, as model.safetensors and model.json.

    :meth:`Embedder.save_pretrained` adds a model card, for a model that is passed on. Each file is
    written completely or not at all. A folder with only one of them replaced is recognized when it
    is loaded.

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
    write_model(folder, model.config, model.preprocessing, model.seed, model.state_dict())


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
        >>> from sumpool.models import EmbedderConfig, build_embedder
        >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16)).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_embedder(model, folder)
        ...     loaded = load_embedder(folder)
        >>> images = torch.rand(2, 3, 32, 32)
        >>> torch.equal(loaded(images), model(images))
        True
    """
    return read_embedder(folder).to(device)


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
