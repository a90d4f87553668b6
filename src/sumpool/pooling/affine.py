"""Layers computed in the dtype of their input rather than that of their parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply ``layer`` to the last dimension of ``x``, in the dtype of ``x``.

    Poolings compute in float32 or float64; their parameters may have lower precision.

    Args:
        layer: A linear layer with C inputs and D outputs.
        x: A tensor of shape (..., C).

    Returns:
        A tensor of shape (..., D), in the dtype of ``x``.

    Example:
        >>> import torch
        >>> affine(nn.Linear(3, 2, dtype=torch.bfloat16), torch.rand(4, 3)).dtype
        torch.float32
    """
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    return F.linear(x, layer.weight.to(x.dtype), bias)


def mapped(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply ``layer``; if ``x`` has another dtype than its parameters, in the wider of both.

    Autocast to half precision and layers with another forward pass choose their dtype themselves.

    Example:
        >>> import torch
        >>> mapped(nn.Linear(3, 2), torch.rand(4, 3, dtype=torch.float16)).dtype
        torch.float32
    """
    own = next(layer.parameters(), x).dtype  # not of the weight, which may have to be computed
    # Other layers, such as quantized ones and adapters, are no product with one weight.
    if type(layer).forward is nn.Linear.forward and x.dtype != own:
        wider = torch.promote_types(x.dtype, own)
        # Autocast casts all dtypes but float64.
        if wider == torch.float64 or not torch.is_autocast_enabled(x.device.type):
            if wider != own:
                return affine(layer, x.to(wider))
            x = x.to(own)
    out: Tensor = layer(x)  # with its hooks, such as those of weight_norm
    return out


def layer_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Apply ``layer`` to the last dimension of ``x``, in the dtype of ``x``.

    Args:
        layer: Layer normalization over C channels, with scale and shift.
        x: A tensor of shape (..., C).

    Returns:
        A tensor with the shape and dtype of ``x``.

    Example:
        >>> import torch
        >>> layer_norm(nn.LayerNorm(2, dtype=torch.bfloat16), torch.tensor([1.0, 3.0])).dtype
        torch.float32
    """
    weight, bias = layer.weight.to(x.dtype), layer.bias.to(x.dtype)
    return F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)
