"""The share of pairs on the wrong side of a distance threshold, and its bound by the loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Violations(NamedTuple):
    """Violation rate of pairs and its bound, averaged over positive and negative pairs.

    Attributes:
        rate: Share of pairs on the wrong side of β.
        bound: Upper bound of the rate by Markov's inequality.
    """

    rate: float
    bound: float


def pair_violations(
    distances: Tensor, positive: Tensor, beta: float, alpha: float, mask: Tensor | None = None
) -> Violations:
    r"""Return the share of pairs that violate β and its bound by the generalized contrastive loss.

    With ι = 1 for positive and −1 for negative pairs, a pair violates β if ι(d − β) > 0. Its loss
    :math:`ℓ = (ι(d - β) + α)_+` then exceeds α, so that
    :math:`P[\text{violation}] \le E[ℓ] / α` [thesis, ch. 3]. Both sides are averaged over positive
    and over negative pairs separately, then over the two means, since negative pairs are far more
    frequent.

    Args:
        distances: Distances d of pairs, of any shape.
        positive: Whether a pair belongs to one class, of the same shape.
        beta: Distance threshold β.
        alpha: Margin α > 0.
        mask: True for the pairs that count, of the same shape; None for all pairs.

    Example:
        >>> import torch
        >>> distances, positive = torch.tensor([0.25, 0.75, 1.0]), torch.tensor([True, True, False])
        >>> pair_violations(distances, positive, beta=0.5, alpha=0.5)
        Violations(rate=0.25, bound=0.5)
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    for name, chosen in (("positive", positive), ("mask", mask)):
        if chosen is not None and (chosen.dtype != torch.bool or chosen.shape != distances.shape):
            raise ValueError(
                f"{name} must be boolean of shape {tuple(distances.shape)}, "
                f"got {chosen.dtype} of shape {tuple(chosen.shape)}"
            )
    signed = (distances - beta).double()
    kept = torch.ones_like(positive) if mask is None else mask
    sides = []
    for chosen, sign in ((positive & kept, 1.0), (~positive & kept, -1.0)):
        found = sign * signed[chosen]
        if found.numel():
            loss = (found + alpha).clamp(min=0).mean()
            sides.append((float((found > 0).double().mean()), float(loss) / alpha))
    if not sides:
        raise ValueError("mask must leave at least one pair")
    rate, bound = (sum(values) / len(sides) for values in zip(*sides, strict=True))
    return Violations(rate, bound)
