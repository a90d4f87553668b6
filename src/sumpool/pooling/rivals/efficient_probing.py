"""Efficient probing: many learned queries without keys, each for a part of the channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.pooling.rivals.multihead import count_parts, masked_softmax
from sumpool.transport.validation import solve_dtype


class _EfficientProbingPool(GlobalPool):
    pool_type = "efficient-probing"

    def __init__(
        self,
        channels: int,
        queries: int | None = None,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        queries = count_parts("queries", queries, 32, channels=channels)
        self.channels = channels
        self.queries = nn.Parameter(torch.empty(queries, channels, device=device, dtype=dtype))
        self.value = nn.Linear(channels, channels, bias=False, device=device, dtype=dtype)
        self._draw_queries()

    def reset_parameters(self) -> None:
        """Reinitialize W_v; draw the queries with standard deviation 0.02, as in the original."""
        super().reset_parameters()
        self._draw_queries()

    def _draw_queries(self) -> None:
        nn.init.normal_(self.queries, std=0.02)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Attend to ``features`` (B, n, C) with each query, in its part of the channels."""
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(solve_dtype(features, self.queries))
            local = zero_invalid(local, mask)
            attention = self.attention(local, mask)
            values = affine(self.value, local)
            values = values.unflatten(-1, (len(self.queries), -1))  # (B, n, M, C/M)
            found = attention.unsqueeze(2) @ values.transpose(1, 2)  # (B, M, 1, C/M)
            weights = attention.mean(1) if details else None
        return Pooled(found.flatten(1).to(features.dtype), weights, None)

    def attention(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Attention (B, M, n) of each query over features (B, n, C)."""
        queries = self.queries.to(local.dtype)  # (M, C)
        return masked_softmax(queries @ local.mT / math.sqrt(queries.shape[1]), mask)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"queries={len(self.queries)}, input_fmt={self.input_fmt!r}"


class EfficientProbingPool2d(_EfficientProbingPool):
    r"""Efficient probing of maps [efficient-probing].

    M learned queries are compared with the unmapped local features, and each pools its own block of
    channels of the mapped features:

    .. math::
        a_m = \operatorname{softmax}_j(q_m^⊤ f_j / \sqrt C), \quad
        v_j = W_v f_j = [v_{j1}, …, v_{jM}], \quad
        g = \Big[\sum_j a_{1j} v_{j1}, …, \sum_j a_{Mj} v_{jM}\Big].

    The weights are the attention averaged over the queries.

    Args:
        channels: Channels C of the maps, and length of the pooled vector.
        queries: Number M of queries, a divisor of C; None uses 32, as the authors do, or the
            largest smaller power of two that divides C.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = EfficientProbingPool2d(64).pool(torch.rand(2, 64, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 64]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class EfficientProbingPool1d(_EfficientProbingPool):
    """Efficient probing of token sequences; arguments as in :class:`EfficientProbingPool2d`."""

    _formats = FORMATS_1D
