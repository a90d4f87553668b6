"""Embedders with a frozen backbone: its feature maps are computed once, the rest is trained."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import nn

from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError
from sumpool.models.weights import tensors_digest
from sumpool.system.modes import evaluating


class Cut(NamedTuple):
    """An embedder in two parts.

    Attributes:
        frozen: Maps images to feature maps.
        learned: The embedder that takes these maps instead of images.
        digest: SHA-256 of the name, options and weights of ``frozen``.
    """

    frozen: nn.Module
    learned: Embedder
    digest: str


def cut(model: Embedder, blocks: int = 0) -> Cut:
    """Split ``model`` before the last ``blocks`` blocks of its backbone; 0 splits after the last.

    Both parts share their layers with ``model``, so training them trains it.

    Args:
        model: The embedder.
        blocks: Number of final blocks in the learned part. Blocks are the modules with weight
            matrices or kernels among those that the network runs in sequence.

    Raises:
        ModelError: If the backbone does not have more blocks, or does not run its modules in
            sequence.

    Example:
        >>> from sumpool.models import EmbedderConfig, build_embedder
        >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16, "gap")).eval()
        >>> images = torch.rand(2, 3, 32, 32)
        >>> frozen, learned, _ = cut(model, blocks=1)
        >>> torch.equal(learned(frozen(images)), model(images))
        True
    """
    network, name = model.backbone, model.config.backbone
    learned = copy.copy(model)
    learned._modules = {**model._modules, "backbone": nn.Identity()}
    named: list[Any] = [name, model.config.backbone_options]
    if blocks:
        before, after = _parts(network, name, blocks)
        learned._modules["backbone"] = _without(network, before)
        network = _without(network, after)
        _check(model, network, learned.backbone, blocks)
        named.append(blocks)
    state = {name: it.detach().cpu() for name, it in network.state_dict().items()}
    text = f"{json.dumps(named, sort_keys=True)} {tensors_digest(state)}"
    return Cut(network, learned, hashlib.sha256(text.encode()).hexdigest())


def _parts(network: nn.Module, name: str, blocks: int) -> tuple[list[str], list[str]]:
    """Names of the modules before the last ``blocks`` blocks, and of those after, in order."""
    modules = _chain(network)
    places = [
        place
        for place, key in enumerate(modules)
        if any(it.ndim > 1 for it in network.get_submodule(key).parameters())
    ]
    if blocks >= len(places):
        raise ModelError(
            f"learned_blocks must be below {len(places)}, the blocks of {name}, got {blocks}"
        )
    return modules[: places[-blocks]], modules[places[-blocks] :]


def _chain(module: nn.Module, prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, child in module.named_children():
        inside = isinstance(child, nn.Sequential) and len(child) > 0
        names += _chain(child, f"{prefix}{name}.") if inside else [f"{prefix}{name}"]
    return names


def _without(module: nn.Module, names: Collection[str], prefix: str = "") -> nn.Module:
    """Copy of ``module`` that shares its layers, with identities in place of the named ones."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    for name, child in module.named_children():
        inner = f"{prefix}{name}"
        if inner in names:
            twin._modules[name] = nn.Identity()
        elif any(it.startswith(f"{inner}.") for it in names):
            twin._modules[name] = _without(child, names, f"{inner}.")
    return twin


def _check(model: Embedder, frozen: nn.Module, learned: nn.Module, blocks: int) -> None:
    side = model.preprocessing.crop
    parameter = next(model.backbone.parameters())
    images = torch.linspace(-1, 1, 3 * side * side).view(1, 3, side, side).to(parameter)
    try:
        with evaluating(model), torch.no_grad():
            same = torch.equal(learned(frozen(images)), model.backbone(images))
    # Networks that are not sequential fail in many ways when modules are replaced by identities.
    except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError, KeyError):
        same = False
    if not same:
        raise ModelError(
            f"learned_blocks must be 0 with {model.config.backbone}, which does not run its "
            f"modules one after the other, got {blocks}"
        )
