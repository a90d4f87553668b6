"""SOLAR pooling: self-attention over positions, then the generalized mean."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.transport.validation import check_at_least_one, check_positive, solve_dtype


def attention_received(queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Attention each position receives, averaged over the queries.

    .. math::
        w_j = \frac1n \sum_i \operatorname{softmax}_j(q_i^⊤ k_j / \sqrt d)

    Args:
        queries: (..., n, d).
        keys: (..., n, d).
        mask: True for valid positions, (..., n); invalid ones neither give nor receive attention.

    Returns:
        A non-negative tensor of shape (..., n) that sums to 1 over its last dimension.

    Example:
        >>> keys = torch.tensor([[0.0], [math.log(3.0)]])
        >>> attention_received(torch.ones(2, 1), keys)
        tensor([0.2500, 0.7500])
    """
    logits = queries @ keys.mT / math.sqrt(queries.shape[-1])  # (..., n, n)
    if mask is None:
        return logits.softmax(-1).mean(-2)
    attention = logits.masked_fill(~mask.unsqueeze(-2), -math.inf).softmax(-1)
    attention = attention.masked_fill(~mask.unsqueeze(-1), 0)
    return attention.sum(-2) / mask.sum(-1, keepdim=True)


class _SolarPool(GlobalPool):
    pool_type = "solar"

    def __init__(
        self,
        channels: int,
        reduction: int = 2,
        p: float = 3.0,
        *,
        learn_p: bool = True,
        floor: float = 1e-6,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, reduction=reduction)
        check_positive(p=p, floor=floor)
        self.channels = channels
        self.floor = float(floor)
        self._p = float(p)
        size = max(1, channels // reduction)
        self.query = nn.Linear(channels, size, device=device, dtype=dtype)
        self.key = nn.Linear(channels, size, device=device, dtype=dtype)
        self.value = nn.Linear(channels, size, device=device, dtype=dtype)
        self.back = nn.Linear(size, channels, device=device, dtype=dtype)
        self.p = nn.Parameter(torch.empty((), device=device, dtype=dtype), requires_grad=learn_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as in the original: Kaiming normal for q, k and v; ψ = 0, so that h = f."""
        for layer in (self.query, self.key, self.value):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.back.weight)
        nn.init.zeros_(self.back.bias)
        with torch.no_grad():
            self.p.fill_(self._p)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Apply self-attention to ``features`` (B, n, C), then take their generalized mean."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.query.weight))
            local = zero_invalid(local, mask)
            q = affine(self.query, local).relu()  # (B, n, C')
            k = affine(self.key, local).relu()
            v = affine(self.value, local)
            attended = F.scaled_dot_product_attention(
                q.unsqueeze(1),  # one head
                k.unsqueeze(1),
                v.unsqueeze(1),
                None if mask is None else mask[:, None, None].expand(-1, -1, mask.shape[1], -1),
            ).squeeze(1)
            second_order = local + affine(self.back, attended)  # (B, n, C)
            embedding = generalized_mean(second_order, self.p, mask, self.floor)
            weights = attention_received(q, k, mask) if details else None
        return Pooled(embedding.to(features.dtype), weights, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        learned = " (learned)" if self.p.requires_grad else ""
        return f"p={self._p}{learned}, floor={self.floor}, input_fmt={self.input_fmt!r}"


class SolarPool2d(_SolarPool):
    r"""SOLAR pooling of maps [solar].

    A block of second-order attention (self-attention over positions, with a skip connection) makes
    each local feature depend on all others, and the generalized mean pools them:

    .. math::
        q_j = \operatorname{relu}(W_q f_j + b_q), \quad k_j = \operatorname{relu}(W_k f_j + b_k),
        \quad v_j = W_v f_j + b_v, \\
        h_i = f_i + ψ\Big(\sum_j \operatorname{softmax}_j(q_i^⊤ k_j / \sqrt{C'})\, v_j\Big), \quad
        g_c = \Big(\frac1n \sum_i \max(h_{ic}, δ)^p\Big)^{1/p}.

    ψ is affine and starts at 0, as in the original, so that the layer starts as GeMean. Batch
    normalization of q and k, which the original has before the relu, is omitted, so that the
    embedding of an image does not depend on its batch. The reported weights are the attention each
    position receives, averaged over the queries.

    Args:
        channels: Channels C of the maps.
        reduction: q, k and v have C' = C / reduction channels, at least 1.
        p: Initial exponent of the generalized mean, positive.
        learn_p: Whether the exponent is learned.
        floor: Lower bound δ > 0 of the features in the generalized mean.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = SolarPool2d(8).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class SolarPool1d(_SolarPool):
    """SOLAR pooling of token sequences; arguments as in :class:`SolarPool2d`."""

    _formats = FORMATS_1D
