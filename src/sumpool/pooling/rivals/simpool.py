"""SimPool: a power mean under attention whose query is the mean feature."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import affine, layer_norm
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.pooling.generalized_mean import LEAST, above_least, generalized_mean
from sumpool.pooling.rivals.multihead import masked_softmax
from sumpool.transport.validation import check_at_least_one, check_positive, solve_dtype


class _SimPool(GlobalPool):
    pool_type = "simpool"

    def __init__(
        self,
        channels: int,
        gamma: float = 2.0,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels)
        check_positive(gamma=gamma)
        self.channels = channels
        self.gamma = float(gamma)
        self.norm = nn.LayerNorm(channels, eps=1e-6, device=device, dtype=dtype)
        self.query = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)
        self.key = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Power mean of ``features`` (B, n, C) under the attention of their mean."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.query.weight))
            local = zero_invalid(local, mask)
            count = local.shape[1] if mask is None else mask.sum(-1, keepdim=True)
            query = affine(self.query, local.sum(1) / count)  # (B, C)
            values = layer_norm(self.norm, local)  # (B, n, C)
            logits = affine(self.key, values) @ query.unsqueeze(-1)  # (B, n, 1)
            attention = masked_softmax(logits.squeeze(-1) / math.sqrt(query.shape[-1]), mask)
            positive = above_least(values, mask)
            embedding = generalized_mean(positive, self.gamma, mask, LEAST / 2, attention)
        return Pooled(embedding.to(features.dtype), attention if details else None, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"gamma={self.gamma}, input_fmt={self.input_fmt!r}"


class SimPool2d(_SimPool):
    r"""SimPool of maps [simpool].

    The mean of the local features is the query, normalized features are keys and values, and a
    power mean with fixed exponent γ pools them under the attention:

    .. math::
        q = W_q \frac1n \sum_j f_j, \quad v_j = \operatorname{LN}(f_j), \quad
        a_j = \operatorname{softmax}_j\big((W_k v_j)^⊤ q / \sqrt C\big), \\
        g_c = \Big(\sum_j a_j (v_{jc} - \min_{ic} v_{ic} + 10^{-6})^γ\Big)^{1/γ}.

    The minimum is taken over the image; the authors' code takes it over the batch, which makes the
    embedding of an image depend on others. The weights are the attention a; the pooled vector is a
    sum weighted by them only at γ = 1.

    Args:
        channels: Channels C of the maps.
        gamma: Exponent γ > 0. The authors use 2 for convolutional networks and 1.25 for vision
            transformers.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = SimPool2d(8).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class SimPool1d(_SimPool):
    """SimPool of token sequences; arguments as in :class:`SimPool2d`."""

    _formats = FORMATS_1D
