"""Multi-head attention, computed in the dtype of its input, and its weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.transport.validation import check_at_least_one


def count_parts(option: str, parts: int | None, usual: int, **size: int) -> int:
    """Return the number of parts of equal length to split a vector into.

    Args:
        option: Name of the argument that sets the number.
        parts: Value of the argument; None uses the greatest common divisor of ``usual`` and the
            length.
        usual: The usual number.
        **size: Length of the vector, keyed by its name.

    Raises:
        ValueError: If the length is not a multiple of the number.

    Example:
        >>> count_parts("heads", None, 8, channels=1280), count_parts("heads", None, 8, channels=4)
        (8, 4)
    """
    check_at_least_one(**size)
    ((name, length),) = size.items()
    if parts is None:
        return math.gcd(usual, length)
    check_at_least_one(**{option: parts})
    if length % parts:
        raise ValueError(f"{option} must divide {name}={length}, got {parts}")
    return parts


class Multihead(nn.Module):
    r"""Multi-head attention of queries over positions [attention, sec. 3.2].

    .. math::
        \operatorname{head}_h = \operatorname{softmax}\big(
        (W_q q)_h (W_k x)_h^⊤ / \sqrt{d_h}\big) (W_v x)_h, \qquad W_o [\operatorname{head}_1, …]

    with a bias in every map. Parameters are initialized as in ``torch.nn.MultiheadAttention``;
    unlike it, this module computes in the dtype of its input rather than that of its parameters,
    with the same results in training and evaluation.

    Args:
        size: Channels of queries and positions.
        heads: Number of heads, a divisor of ``size``.
        device, dtype: Device and dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size, device=device, dtype=dtype)
        self.key = nn.Linear(size, size, device=device, dtype=dtype)
        self.value = nn.Linear(size, size, device=device, dtype=dtype)
        self.out = nn.Linear(size, size, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize q, k and v by Xavier, as if they were one map; biases are 0."""
        for layer in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(layer.weight, gain=0.5**0.5)
            nn.init.zeros_(layer.bias)
        self.out.reset_parameters()
        nn.init.zeros_(self.out.bias)

    def forward(self, queries: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend to ``x`` (B, n, C), valid where ``mask`` (B, n), with ``queries`` (B, M, C)."""
        q, k = self._split(affine(self.query, queries)), self._split(affine(self.key, x))
        v = self._split(affine(self.value, x))
        valid = None if mask is None else mask[:, None, None].expand(-1, -1, q.shape[2], -1)
        found = F.scaled_dot_product_attention(q, k, v, valid)  # (B, heads, M, C/heads)
        return affine(self.out, found.transpose(1, 2).flatten(2))

    def shares(self, queries: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention each position receives, (B, n), averaged over heads and queries."""
        q, k = self._split(affine(self.query, queries)), self._split(affine(self.key, x))
        logits = q @ k.mT / math.sqrt(q.shape[-1])  # (B, heads, M, n)
        return masked_softmax(logits, mask).mean((1, 2))

    def _split(self, x: Tensor) -> Tensor:
        parts: Tensor = x.unflatten(-1, (self.heads, -1))
        return parts.transpose(1, 2)


def masked_softmax(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension of ``logits`` (B, …, n); 0 where ``mask`` (B, n) is False."""
    if mask is not None:
        mask = mask.view(mask.shape[0], *[1] * (logits.ndim - 2), mask.shape[1])
        logits = logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1)
