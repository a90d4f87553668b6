"""Networks of timm without classifier and pooling, and their preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import timm
from timm.models import VGG
from torch import nn

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.errors import ModelError

#: Accepted options of timm's networks: those that change the network and open no files.
OPTIONS = (
    *("output_stride", "img_size", "patch_size", "dynamic_img_size", "strict_img_size"),
    *("embed_dim", "depth", "depths", "num_heads", "mlp_ratio", "window_size"),
    *("drop_rate", "drop_path_rate", "proj_drop_rate", "attn_drop_rate", "patch_drop_rate"),
)


def build_timm(
    name: str, *, pretrained: bool, crop: int | None, options: Mapping[str, Any]
) -> tuple[nn.Module, Preprocessing, tuple[str, ...]]:
    """Build a network of timm.

    Args:
        name: A timm model name, with or without its tag.
        pretrained: Whether to load timm's weights, which are downloaded unless cached.
        crop: Image side that a network of fixed input size is built for; None for its own.
        options: Further arguments of ``timm.create_model``, from ``OPTIONS``.

    Returns:
        The network, its preprocessing, and the names of its classifier modules.

    Raises:
        ValueError: If there are no pretrained weights, an option or the tag is unknown, or timm
            cannot build the network.
        ModelError: If timm cannot load the weights.
    """
    unknown = [key for key in options if key not in OPTIONS]
    if unknown:
        raise ValueError(
            f"options of the backbone {name!r} must be among stages, {', '.join(OPTIONS)}, "
            f"got {unknown}"
        )
    try:
        settings = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise ValueError(f"backbone {name!r}: {error}") from error
    if pretrained and not timm.models.is_model_pretrained(name):
        raise ValueError(f"weights='timm': timm has no pretrained weights of {name!r}")
    view = _view(settings)
    arguments = dict(options)
    if settings is not None and settings.fixed_input_size and crop not in (None, view.crop):
        arguments.setdefault("img_size", crop)
    try:
        network: nn.Module = timm.create_model(
            name, pretrained=pretrained, num_classes=0, global_pool="", **arguments
        )
    except Exception as error:  # downloads and options of networks can raise anything
        reason = str(error) or type(error).__name__
        if pretrained:
            raise ModelError(
                f"weights='timm': timm could not load {name!r}, whose weights it downloads unless "
                f"they are in its cache: {reason}"
            ) from error
        raise ValueError(
            f"timm cannot build {name!r} without pooling and with the options {arguments}: {reason}"
        ) from error
    head = () if settings is None else settings.classifier or ()
    classifier = (head,) if isinstance(head, str) else tuple(head)
    if isinstance(network, VGG):
        # Its layers reduce the map to a single position.
        network.pre_logits = nn.Identity()  # type: ignore[assignment]
        classifier = (*classifier, "pre_logits")
    return network, view, classifier


def _view(settings: Any) -> Preprocessing:
    if settings is None:
        return Preprocessing()
    mean, std = tuple(settings.mean), tuple(settings.std)
    if not settings.fixed_input_size:
        return Preprocessing(mean=mean, std=std)
    crop = settings.input_size[-1]
    return with_sizes(Preprocessing(mean=mean, std=std), _usual_resize(crop), crop)


def _usual_resize(crop: int) -> int:
    return round(crop * 8 / 7)  # 256 for 224


def with_sizes(view: Preprocessing, resize: int | None, crop: int | None) -> Preprocessing:
    """Return ``view`` with other sizes; its random boxes cover the same share of an image."""
    if crop is None:
        crop = view.crop
    elif resize is None and crop != view.crop:
        # Images that are not cropped stay uncropped.
        resize = crop if view.resize == view.crop else _usual_resize(crop)
    if resize is None:
        resize = view.resize
    assert resize is not None
    assert view.resize is not None
    scale = (resize / view.resize) ** 2
    area = (view.area[0] * scale, view.area[1] * scale)
    return replace(view, resize=resize, crop=crop, area=area)
