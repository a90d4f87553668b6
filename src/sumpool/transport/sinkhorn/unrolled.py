"""Sinkhorn's iterations in torch, differentiated by autograd to any order."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def unrolled_sinkhorn(scores: Tensor, iterations: int, mask: Tensor | None) -> Tensor:
    """Compute the plan for ``scores`` −ε c of shape (..., n, m)."""
    n, m = scores.shape[-2:]
    if mask is None:
        log_row = -scores.new_full((1, 1), n).log()
    else:
        count = mask.sum(-1, keepdim=True).to(scores.dtype)
        log_row = (-count.log()).masked_fill(~mask, -math.inf).unsqueeze(-1)  # (..., n, 1)

    psi = torch.zeros_like(scores[..., :1, :])  # (..., 1, m)
    for _ in range(iterations):
        phi = log_row - torch.logsumexp(scores + psi, -1, keepdim=True)  # (..., n, 1)
        psi = -math.log(m) - torch.logsumexp(scores + phi, -2, keepdim=True)
    # Scale the features last, by a softmax: their marginal holds to rounding.
    return log_row.exp() * (scores + psi).softmax(-1)
