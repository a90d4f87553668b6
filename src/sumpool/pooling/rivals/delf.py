"""DeLF pooling: the sum of local features weighted by a learned score."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_at_least_one, solve_dtype

# Below this logit, softplus(z) equals exp(z) to float64 precision.
_EXPONENTIAL = -40.0


def score_shares(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Scores softplus(z) divided by their sum, from logarithms to avoid 0 / 0.

    Args:
        logits: z of shape (..., n).
        mask: True for valid positions, (..., n); invalid ones have share 0.

    Returns:
        A non-negative tensor of shape (..., n) that sums to 1 over its last dimension.

    Example:
        >>> score_shares(torch.tensor([-300.0, -300.0]))
        tensor([0.5000, 0.5000])
    """
    logs = F.softplus(logits.clamp(min=_EXPONENTIAL)).log()
    logs = torch.where(logits < _EXPONENTIAL, logits, logs)
    if mask is not None:
        logs = logs.masked_fill(~mask, -math.inf)
    return logs.softmax(-1)


class _DelfPool(GlobalPool):
    pool_type = "delf"

    def __init__(
        self,
        channels: int,
        hidden: int = 512,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, hidden=hidden)
        self.channels = channels
        self.hidden_layer = nn.Linear(channels, hidden, device=device, dtype=dtype)
        self.score_layer = nn.Linear(hidden, 1, device=device, dtype=dtype)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Sum ``features`` (B, n, C), each multiplied by its score."""
        dtype = solve_dtype(features, self.hidden_layer.weight)
        with torch.autocast(features.device.type, enabled=False):
            local = features.to(dtype)
            local = zero_invalid(local, mask)
            logits = self._logits(local)  # (B, n)
            scores = F.softplus(logits)
            if mask is not None:
                scores = scores.masked_fill(~mask, 0)
            embedding = (scores.unsqueeze(1) @ local).squeeze(1)  # (B, C)
            weights = score_shares(logits, mask) if details else None
        return Pooled(embedding.to(features.dtype), weights, None)

    def _logits(self, local: Tensor) -> Tensor:
        return affine(self.score_layer, affine(self.hidden_layer, local).relu()).squeeze(-1)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"input_fmt={self.input_fmt!r}"


class DelfPool2d(_DelfPool):
    r"""DeLF pooling of maps [delf].

    Each local feature f_j has a score from two 1×1 convolutions, and the pooled vector is the
    weighted sum

    .. math::
        s_j = \operatorname{softplus}(w_2^⊤ \operatorname{relu}(W_1 f_j + b_1) + b_2), \qquad
        \sum_j s_j f_j,

    which, as in the original, is not divided by the sum of the scores; the reported weights are
    s_j / Σ_i s_i. The original trains the scores after the features, which are kept fixed; here
    both are learned jointly.

    Args:
        channels: Channels C of the maps.
        hidden: Number of hidden units, the length of W_1 f.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = DelfPool2d(8).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class DelfPool1d(_DelfPool):
    """DeLF pooling of token sequences; arguments as in :class:`DelfPool2d`."""

    _formats = FORMATS_1D
