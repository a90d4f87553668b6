"""The layout of local features in the output of a network."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sumpool.system.modes import evaluating


class FeatureLayout(NamedTuple):
    """Layout of the output of a backbone.

    Attributes:
        format: "NCHW" or "NHWC" for maps, "NLC" for token sequences.
        channels: Length of a local feature.
        num_prefix_tokens: Leading tokens of a sequence (class, registers), which have no position
            in the image.
    """

    format: str
    channels: int
    num_prefix_tokens: int = 0


def find_layout(network: nn.Module, name: str, size: int) -> FeatureLayout:
    """Infer the layout from the output of ``network`` for two blank images.

    timm's networks declare maps other than NCHW by ``output_fmt``, and tokens before the patches by
    ``num_prefix_tokens`` or a ``cls_token``.

    Args:
        network: Maps images (B, 3, size, size) to local features.
        name: Name of the network in error messages.
        size: Side of the image.

    Raises:
        ValueError: If the network does not accept images of this size, or its output is not local
            features.
    """
    parameter = next(network.parameters())
    # Two, because some networks misread a batch of more than one, and this shows here.
    blank = torch.zeros(2, 3, size, size, device=parameter.device, dtype=parameter.dtype)
    try:
        with evaluating(network), torch.no_grad():
            out = network(blank)
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        raise ValueError(
            f"backbone {name!r} does not take images of {size}×{size} pixels, set crop, or "
            f"train_crop, to a size it takes: {str(error) or type(error).__name__}"
        ) from error
    if isinstance(out, Tensor) and out.ndim == 4:
        kind = str(getattr(network, "output_fmt", "NCHW"))
        if kind in ("NCHW", "NHWC"):
            return FeatureLayout(kind, out.shape[kind.index("C")])
    if isinstance(out, Tensor) and out.ndim == 3:
        prefix = getattr(network, "num_prefix_tokens", None)
        if prefix is None:
            prefix = int(isinstance(getattr(network, "cls_token", None), Tensor))
        return FeatureLayout("NLC", out.shape[2], prefix)
    shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
    raise ValueError(
        f"backbone {name!r} must give maps (B, C, h, w) or (B, h, w, C) or tokens (B, L, C), "
        f"got {shape} for two images"
    )
