"""Backbones by name: the package's own and all timm models."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.layout import FeatureLayout, find_layout
from sumpool.models.packaged import packaged_state, packaged_weights
from sumpool.models.stages import TwoStages
from sumpool.models.timm_networks import build_timm, with_sizes
from sumpool.models.weights import load_state, read_state


@dataclass(frozen=True)
class BackboneRecipe:
    """Recipe for one of the package's own backbones.

    Attributes:
        source: Its class or function as "module:name", imported on use. It outputs NCHW maps.
        options: Fixed arguments of the class or function.
        preprocessing: Preprocessing of its images.
        classifier: Classifier modules that its weight files may contain.
    """

    source: str
    preprocessing: Preprocessing
    options: Mapping[str, Any] = field(default_factory=dict)
    classifier: tuple[str, ...] = ()

    def build(self, name: str, options: Mapping[str, Any]) -> nn.Module:
        """Build the network with random weights; a ValueError names unknown options."""
        module, _, attribute = self.source.partition(":")
        cls = getattr(importlib.import_module(module), attribute)
        accepted = [key for key in inspect.signature(cls).parameters if key not in self.options]
        unknown = [key for key in options if key not in accepted]
        if unknown:
            raise ValueError(
                f"options of the backbone {name!r} must be among {accepted}, got {unknown}"
            )
        network: nn.Module = cls(**self.options, **options)
        return network


def _small_images(side: int, mean: Any, std: Any, *, flip: bool) -> Preprocessing:
    """Preprocessing of square images, without cropping."""
    return Preprocessing(resize=side, crop=side, mean=mean, std=std, augment="none", flip=flip)


#: The package's own backbones; other names are looked up in timm.
BACKBONES: Mapping[str, BackboneRecipe] = {
    "bn_inception": BackboneRecipe(
        "sumpool.models.bn_inception:BNInception",
        # RGB pixels in 0..255 minus the mean; the network converts them to BGR.
        Preprocessing(mean=(128 / 255, 117 / 255, 104 / 255), std=(1 / 255, 1 / 255, 1 / 255)),
        classifier=("last_linear",),
    ),
    "resnet20": BackboneRecipe(
        "sumpool.models.cifar_resnet:CifarResNet",
        _small_images(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), flip=True),
        classifier=("fc",),
    ),
    "resnetv2_20": BackboneRecipe(
        "sumpool.models.cifar_resnet:CifarResNet",
        _small_images(28, (0.1307,) * 3, (0.3081,) * 3, flip=False),
        options={"preactivated": True},
        classifier=("fc",),
    ),
    "resnet50_v1": BackboneRecipe(
        "sumpool.models.resnet50_v1:resnet50_v1",
        # Pixels in 0..255 minus the mean.
        Preprocessing(
            mean=(123.68 / 255, 116.779 / 255, 103.939 / 255), std=(1 / 255, 1 / 255, 1 / 255)
        ),
        classifier=("fc",),
    ),
    "small_cnn": BackboneRecipe(
        "sumpool.models.small_cnn:SmallConvNet",
        _small_images(48, (0.29,) * 3, (0.27,) * 3, flip=False),
    ),
}


class Backbone(NamedTuple):
    """A network with its output layout and input preprocessing.

    Attributes:
        network: Maps images (B, 3, crop, crop) to local features.
        layout: Layout of the local features.
        preprocessing: Turns an image into the network's input.
    """

    network: nn.Module
    layout: FeatureLayout
    preprocessing: Preprocessing


def build_backbone(
    name: str,
    *,
    weights: str = "none",
    resize: int | None = None,
    crop: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Backbone:
    """Build a backbone without classifier and pooling.

    Args:
        name: One of :data:`BACKBONES` or a timm model name, with or without its tag.
        weights: "packaged", "none", "timm" or a file path, as in :class:`EmbedderConfig`.
        resize: Shorter side of images before cropping; None for the backbone's default.
        crop: Side of the cropped images; None for the backbone's default. Networks with a fixed
            input size are built for it.
        options: Further arguments of the network, and ``stages``: 2 concatenates the maps of its
            last two stages (:class:`~sumpool.models.stages.TwoStages`).

    Raises:
        ValueError: If the name is unknown (the message suggests close ones), an option or the kind
            of weights is not accepted, or the network does not output local features.
        ModelError: If the weights cannot be loaded.

    Example:
        >>> backbone = build_backbone("resnet20")
        >>> backbone.layout
        FeatureLayout(format='NCHW', channels=64, num_prefix_tokens=0)
        >>> backbone.preprocessing.crop
        32
    """
    options = dict(options or {})
    stages = options.pop("stages", 1)
    if stages not in (1, 2):
        raise ValueError(f"stages must be 1 or 2, got {stages!r}")
    if weights == "packaged":
        packaged_weights(name)  # raises before anything is built
    if name in BACKBONES:
        if weights == "timm":
            raise ValueError(f"weights='timm' are there for timm's networks, not for {name!r}")
        recipe = BACKBONES[name]
        network = recipe.build(name, options)
        preprocessing, classifier = recipe.preprocessing, recipe.classifier
    else:
        _check_timm_name(name)
        network, preprocessing, classifier = build_timm(
            name, pretrained=weights == "timm", crop=crop, options=options
        )
    preprocessing = with_sizes(preprocessing, resize, crop)
    if weights == "packaged":
        packaged = packaged_weights(name)
        preprocessing = replace(preprocessing, mean=packaged.mean, std=packaged.std)
        source = f"the package {packaged.package}"
        load_state(network, packaged_state(name), source=source, classifier=(packaged.classifier,))
    elif weights not in ("none", "timm"):
        load_state(network, read_state(weights), source=weights, classifier=classifier)
    if stages == 2:
        network = TwoStages(network, name)
    return Backbone(network, find_layout(network, name, preprocessing.crop), preprocessing)


def _check_timm_name(name: str) -> None:
    if timm.is_model(name):
        return
    close = difflib.get_close_matches(name, [*BACKBONES, *timm.list_models()], n=5)
    hint = f"did you mean {', '.join(close)}?" if close else "timm.list_models() lists its names"
    raise ValueError(
        f"backbone must be one of {', '.join(BACKBONES)} or a model of timm, got {name!r}: {hint}"
    )


def run_backbone(network: nn.Module, images: Tensor) -> Tensor:
    """Return the features of ``images`` (B, 3, H, W).

    On a CPU without gradients, it uses the channels-last memory format, which is faster and equal
    up to rounding.
    """
    quick = images.device.type == "cpu" and not torch.is_grad_enabled()
    if not quick or isinstance(network, nn.Identity) or torch.compiler.is_compiling():
        features: Tensor = network(images)
        return features
    features = network(images.contiguous(memory_format=torch.channels_last))
    return features.contiguous()
