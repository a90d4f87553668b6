"""Attention pooling: one learned query attends to all positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine, layer_norm
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.pooling.rivals.multihead import Multihead, count_parts
from sumpool.transport.validation import solve_dtype


class _Perceptron(nn.Module):
    """x + W_2 gelu(W_1 LN(x)), in the dtype of x."""

    def __init__(
        self,
        channels: int,
        hidden: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6, device=device, dtype=dtype)
        self.widen = nn.Linear(channels, hidden, device=device, dtype=dtype)
        self.narrow = nn.Linear(hidden, channels, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.gelu(affine(self.widen, layer_norm(self.norm, x)))
        return x + affine(self.narrow, wide)


class _AttentionPool(GlobalPool):
    pool_type = "attention"

    def __init__(
        self,
        channels: int,
        heads: int | None = None,
        mlp_ratio: float = 4.0,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        heads = count_parts("heads", heads, 8, channels=channels)
        hidden = int(channels * mlp_ratio)
        if mlp_ratio < 0 or (mlp_ratio and hidden < 1):
            raise ValueError(
                f"mlp_ratio must be 0 or at least 1/channels = 1/{channels}, got {mlp_ratio}"
            )
        self.channels = channels
        self.latent = nn.Parameter(torch.empty(1, 1, channels, device=device, dtype=dtype))
        self.norm = nn.LayerNorm(channels, eps=1e-6, device=device, dtype=dtype)
        self.attention = Multihead(channels, heads, device=device, dtype=dtype)
        self.mlp: nn.Module = nn.Identity()
        if hidden:
            self.mlp = _Perceptron(channels, hidden, device=device, dtype=dtype)
        self._draw_query()

    def reset_parameters(self) -> None:
        """Reinitialize the layers; draw the query with entries of variance 1/C."""
        super().reset_parameters()
        self._draw_query()

    def _draw_query(self) -> None:
        nn.init.trunc_normal_(self.latent, std=self.latent.shape[-1] ** -0.5)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Attend to ``features`` (B, n, C) with the learned query."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.latent))
            local = layer_norm(self.norm, zero_invalid(local, mask))
            query = self.latent.to(local.dtype).expand(local.shape[0], -1, -1)
            found = self.mlp(self.attention(query, local, mask).squeeze(1))  # (B, C)
            weights = self.attention.shares(query, local, mask) if details else None
        return Pooled(found.to(features.dtype), weights, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"heads={self.attention.heads}, input_fmt={self.input_fmt!r}"


class AttentionPool2d(_AttentionPool):
    r"""Attention pooling of maps by a learned query, followed by a perceptron [map].

    .. math::
        z = \operatorname{MHA}(q, \operatorname{LN}(f), \operatorname{LN}(f)), \qquad
        g = z + W_2 \operatorname{gelu}(W_1 \operatorname{LN}(z)),

    with h heads and biases. This is the head of SigLIP and timm (``AttentionPoolLatent``), where
    the layer normalization of the local features is the last one of the vision transformer. The
    weights are the attention averaged over heads, each of which weights its own part of the
    channels.

    Args:
        channels: Channels C of the maps.
        heads: Number h of heads, a divisor of C; None uses the largest of 8, 4, 2 and 1 that
            divides C.
        mlp_ratio: Ratio of the perceptron's hidden units to C; 0 omits the perceptron.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = AttentionPool2d(8).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class AttentionPool1d(_AttentionPool):
    """Attention pooling of token sequences; arguments as in :class:`AttentionPool2d`."""

    _formats = FORMATS_1D
