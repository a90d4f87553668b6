"""Greedy k-center: a few points that cover many."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sumpool.transport.validation import check_floating, is_integer, solve_dtype


def greedy_k_center(
    points: Tensor, k: int, chosen: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Pick k points one by one, each the farthest from all earlier centers [gonzalez85].

    The covering radius of the picks is at most twice the optimum. Costs O(k · n · d).

    Args:
        points: Points of shape (..., n, d); leading dimensions are separate problems.
        k: Number of points to pick, at most the number of valid points.
        chosen: Centers already chosen, of shape (..., c, d). Without them, the first pick is the
            first valid point.
        mask: True for points that may be picked, of shape (..., n).

    Returns:
        Indices of the picks in order, int64 of shape (..., k).

    Example:
        >>> greedy_k_center(torch.tensor([[0.0], [1.0], [10.0], [4.0]]), k=3)
        tensor([0, 2, 3])
    """
    valid = check_points(points, mask)
    fewest = int(valid.sum(-1).min())
    if not is_integer(k) or not 1 <= k <= fewest:
        raise ValueError(f"k must be between 1 and the {fewest} points to pick from, got {k!r}")
    points = zero_invalid(points, mask).to(solve_dtype(points))
    far = torch.full_like(points[..., 0], torch.inf)  # distance to the nearest center, (..., n)
    if chosen is not None:
        if chosen.shape[-1] != points.shape[-1]:
            raise ValueError(
                f"chosen must have the {points.shape[-1]} channels of points, "
                f"got shape {tuple(chosen.shape)}"
            )
        if chosen.shape[-2]:
            # Not by a matrix product, which is off by 3e-4 at distance 0 in float32.
            exact = "donot_use_mm_for_euclid_dist"
            far = torch.cdist(points, chosen.to(points.dtype), compute_mode=exact).amin(-1)
    far = torch.where(valid, far, -torch.inf)
    return torch.cat([pick for pick, _ in farthest_first(points, far, k)], -1)


def farthest_first(points: Tensor, far: Tensor, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pick the farthest of ``points`` (..., n, d) ``steps`` times.

    ``far`` (..., n) holds the distance of each point to its nearest center: inf without centers,
    −inf for points that must not be picked. Yields each pick (..., 1) and the updated ``far``, −inf
    at all picks.
    """
    for _ in range(steps):
        pick = far.argmax(-1, keepdim=True)  # (..., 1); ties go to the first
        center = points.gather(-2, pick.unsqueeze(-1).expand(*pick.shape, points.shape[-1]))
        near = torch.linalg.vector_norm(points - center, dim=-1)
        # Picked points are excluded for good, even among duplicates at distance 0.
        far = torch.minimum(far, near).scatter(-1, pick, -torch.inf)
        yield pick, far


def zero_invalid(points: Tensor, mask: Tensor | None) -> Tensor:
    """Return ``points`` (..., n, d) with those outside the mask (..., n), even NaN, at 0."""
    return points if mask is None else points.masked_fill(~mask.unsqueeze(-1), 0)


def check_points(points: Tensor, mask: Tensor | None) -> Tensor:
    """Check ``points`` (..., n, d) and ``mask``; return which points are valid, (..., n)."""
    check_floating("points", points)
    if points.ndim < 2 or points.shape[-2] < 1:
        raise ValueError(
            f"points must have shape (..., n, d) with n >= 1, got {tuple(points.shape)}"
        )
    if mask is None:
        return torch.ones(points.shape[:-1], dtype=torch.bool, device=points.device)
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask.dtype != torch.bool or mask.shape != points.shape[:-1]:
        raise ValueError(
            f"mask must be boolean of shape {tuple(points.shape[:-1])}, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask
