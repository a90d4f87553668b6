"""Covering radii of point sets."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.transport.k_center import check_points, farthest_first, zero_invalid
from sumpool.transport.validation import check_floating, readable, solve_dtype


def covering_radius(points: Tensor, centers: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the largest distance of a point to its nearest center.

    Args:
        points: Points (..., n, d); leading dimensions, such as classes, are separate problems.
        centers: Centers (..., k, d) with k >= 1.
        mask: True for points that count, of shape (..., n), at least one in each problem.

    Returns:
        The radius, of shape (...).

    Example:
        >>> covering_radius(torch.tensor([[0.0], [1.0], [10.0]]), torch.tensor([[2.0]]))
        tensor(8.)
    """
    valid = _valid(points, mask)
    check_floating("centers", centers)
    wanted = (*points.shape[:-2], "k", points.shape[-1])
    if (
        centers.ndim != points.ndim
        or centers.shape[:-2] != points.shape[:-2]
        or centers.shape[-1] != points.shape[-1]
        or centers.shape[-2] < 1
    ):
        shape = ", ".join(map(str, wanted))
        raise ValueError(
            f"centers must have shape ({shape}) with k >= 1, got {tuple(centers.shape)}"
        )
    # Without a matrix product, so that a point that is a center has distance 0.
    sound = zero_invalid(points, mask).to(solve_dtype(points))
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(sound, centers.to(sound.dtype), compute_mode=exact)
    return apart.amin(-1).masked_fill(~valid, 0.0).amax(-1).to(points.dtype)


def mean_covering_radius(points: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean covering radius of k greedy centers over k = 1..n [thesis, chapter 3].

    Centers are picked among the points as in :func:`greedy_k_center`, starting with the first valid
    point; each pick extends the previous ones, so that one pass of cost O(n² · d) gives all radii.

    Args:
        points: Points (..., n, d); leading dimensions, such as classes, are separate problems.
        mask: True for points that count, of shape (..., n), at least one in each problem; n above
            is their number.

    Returns:
        The average, of shape (...).

    Example:
        >>> mean_covering_radius(torch.tensor([[0.0], [1.0], [10.0]]))  # 10, 1 and 0
        tensor(3.6667)
    """
    valid = _valid(points, mask)
    dtype = points.dtype
    points = zero_invalid(points, mask).to(solve_dtype(points))
    far = torch.where(valid, torch.inf, -torch.inf).to(points)
    total = torch.zeros_like(points[..., 0, 0])
    for _, far in farthest_first(points, far, int(valid.sum(-1).max())):  # noqa: B020
        total = total + far.amax(-1).clamp(min=0)  # radius 0 once all points are picked
    return (total / valid.sum(-1)).to(dtype)


def _valid(points: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask of points that count, checking that each problem has at least one."""
    valid = check_points(points, mask)
    if readable() and not bool(valid.any(-1).all()):
        raise ValueError("mask must leave a point in every problem, one has none")
    return valid
