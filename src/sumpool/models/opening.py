"""Loading and saving of models in the folder of a run or their own."""

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
    """Load the model of a run, a saved model, or "pretrained", in evaluation mode.

    Args:
        folder: Folder of a run, one written by :func:`save_embedder`, or "hf://organization/name"
            on the Hugging Face Hub. "pretrained", unless a folder has that name, is the packaged
            network without further training: the mean of its last map.
        device: Device of the model.

    Raises:
        ModelError: If there is no model in ``folder``, or it cannot be loaded; the message names
            the file and the defect.
    """
    if is_pretrained(folder):
        return pretrained_embedder().to(device)
    return Embedder.from_pretrained(folder, device)


def save_embedder(model: Embedder, folder: str | Path) -> None:
    """Write ``model`` to ``folder`` as model.safetensors and model.json.

    :meth:`Embedder.save_pretrained` adds a model card, for sharing the model. Each file is written
    completely or not at all; if only one of them was replaced, loading detects the mismatch.

    Args:
        model: The model itself, not a wrapper around it.
        folder: Created if missing; a model in it is replaced.

    Raises:
        TypeError: If ``model`` is not an :class:`Embedder`.
        ModelError: If a file cannot be written; its previous version is kept.
    """
    if not isinstance(model, Embedder):
        raise TypeError(
            f"model must be an Embedder, got {type(model).__name__}: pass what a wrapper wraps"
        )
    write_model(folder, model.config, model.preprocessing, model.seed, model.state_dict())


def load_embedder(folder: str | Path, device: torch.device | str = "cpu") -> Embedder:
    """Load a model written by :func:`save_embedder`, in evaluation mode.

    Nothing in the files is executed, and neither network access nor packaged weights are needed.

    Args:
        folder: Folder with model.safetensors and model.json.
        device: Device of the model.

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

    The pooling is copied only together with the map, in whose output space its prototypes lie.

    Returns:
        A sentence on what was copied and what is new.

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
    """Describe the first tensor whose shapes differ or that only one side has; empty if none."""
    for name in (*own, *other):
        if name not in own or name not in other:
            return f"{name} only in one"
        if own[name].shape != other[name].shape:
            return f"{name} is {tuple(own[name].shape)}, was {tuple(other[name].shape)}"
    return ""
