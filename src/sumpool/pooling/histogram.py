"""Average pooling as a histogram of an image's features over prototypes [thesis, ch. 4]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.transport.validation import broadcasts_to, check_features, check_mask, solve_dtype


class AveragePoolingError(NamedTuple):
    """Distance of average pooling from a convex combination of prototypes, per image.

    The values satisfy error ≤ distance ≤ radius.

    Attributes:
        error: ‖Σ_i p*_i ν_i − Σ_j w_j f_j‖₂ of shape (...).
        distance: Σ_j w_j min_i ‖ν_i − f_j‖₂ of shape (...): the mean distance of a feature to its
            nearest prototype, which is the optimal transport distance between (p*, ν) and (w, f).
        radius: Largest distance of a feature to its nearest prototype, of shape (...). Its maximum
            over all images is δ, the covering radius of the prototypes.
        histogram: p* of shape (..., m).
    """

    error: Tensor
    distance: Tensor
    radius: Tensor
    histogram: Tensor


def histogram(
    features: Tensor,
    prototypes: Tensor,
    mask: Tensor | None = None,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Histogram of features over prototypes: each feature adds 1/n to its nearest prototype.

    It is the solution p* of min Σ_ij π_ij ‖ν_i − f_j‖₂ over π ≥ 0 and p with Σ_i π_ij = 1/n and
    Σ_j π_ij = p_i [thesis, def. 4.2.1 and claim 4.2.1]. Vectors are not normalized; ties go to the
    first prototype.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ν of shape (m, d).
        mask: True for valid features, broadcastable to (..., n); n counts only these.
        weights: Masses w ≥ 0 of the features instead of 1/n, broadcastable to (..., n), such as
            the weights of another pooling. Not with a mask: a weight of 0 excludes a feature.

    Returns:
        p* of shape (..., m) in float32, or in float64 if an input is float64. It sums to 1, or to
        the sum of the weights.

    Example:
        >>> features = torch.tensor([[0.1, 0.0], [0.9, 0.0], [0.8, 0.1], [1.0, 0.0]])
        >>> histogram(features, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 5.0]]))
        tensor([0.2500, 0.7500, 0.0000])
    """
    features, prototypes, mass = _checked(features, prototypes, mask, weights)
    return _histogram(_nearest(features, prototypes), mass, len(prototypes))


def prototype_combination(
    features: Tensor,
    prototypes: Tensor,
    mask: Tensor | None = None,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    r"""Convex combination of prototypes (PCC): Σ_i p*_i ν_i with p* of :func:`histogram`.

    Average pooling with every feature replaced by its nearest prototype. The result lies in the
    convex hull of the prototypes in use.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ν of shape (m, d).
        mask: True for valid features, broadcastable to (..., n).
        weights: Masses of the features instead of 1/n, broadcastable to (..., n).

    Returns:
        Embeddings of shape (..., d) in float32, or in float64 if an input is float64.

    Example:
        >>> features = torch.tensor([[0.1, 0.0], [0.9, 0.0], [0.8, 0.1], [1.0, 0.0]])
        >>> prototype_combination(features, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 5.0]]))
        tensor([0.7500, 0.0000])
    """
    features, prototypes, mass = _checked(features, prototypes, mask, weights)
    p = _histogram(_nearest(features, prototypes), mass, len(prototypes))
    with torch.autocast(p.device.type, enabled=False):
        return p @ prototypes


def average_pooling_error(
    features: Tensor,
    prototypes: Tensor,
    mask: Tensor | None = None,
    *,
    weights: Tensor | None = None,
) -> AveragePoolingError:
    r"""Distance between average pooling and the convex combination of prototypes, with its bound.

    With i(j) the prototype nearest to f_j, the difference of the two is Σ_j (ν_{i(j)} − f_j)/n, and
    by the triangle inequality

        ‖Σ_i p*_i ν_i − (1/n) Σ_j f_j‖₂ ≤ (1/n) Σ_j ‖ν_{i(j)} − f_j‖₂ ≤ δ

    for any features. [thesis, prop. 4.2.1] bounds the *square* of the error by δ for features in
    the unit ball. For δ ≤ 1 this bound follows from the one above, since δ² ≤ δ, and is weaker; for
    δ > 1 it does not hold: with a prototype at (1, 0) and all features at (−1, 0), δ is 2 and the
    squared error 4. See docs/averaging.md.

    Args:
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ν of shape (m, d).
        mask: True for valid features, broadcastable to (..., n).
        weights: Masses of the features instead of 1/n, broadcastable to (..., n). The bound holds
            if they sum to 1; the radius covers only features with positive mass.

    Returns:
        An :class:`AveragePoolingError`, in float32, or in float64 if an input is float64.

    Example:
        >>> features = torch.tensor([[[0.1, 0.0], [0.9, 0.0], [0.8, 0.1], [1.0, 0.0]]])
        >>> found = average_pooling_error(features, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        >>> found.error, found.radius
        (tensor([0.0559]), tensor([0.2236]))
    """
    features, prototypes, mass = _checked(features, prototypes, mask, weights)
    nearest = _nearest(features, prototypes)  # (..., n)
    p = _histogram(nearest, mass, len(prototypes))
    # Differences per feature, rather than of the two sums, avoid cancellation.
    apart = prototypes[nearest] - features  # (..., n, d)
    away = torch.linalg.vector_norm(apart, dim=-1)  # (..., n)
    error = torch.linalg.vector_norm((mass.unsqueeze(-1) * apart).sum(-2), dim=-1)
    radius = torch.where(mass > 0, away, 0).amax(-1)
    return AveragePoolingError(error, (mass * away).sum(-1), radius, p)


def _checked(
    features: Tensor, prototypes: Tensor, mask: Tensor | None, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Features and prototypes in the dtype of the result, and the mass of each feature."""
    check_features(features, prototypes)
    dtype = solve_dtype(features, prototypes)
    shape = features.shape[:-1]
    features, prototypes = features.to(dtype), prototypes.to(dtype)
    if weights is None:
        valid = torch.ones((), dtype=torch.bool, device=features.device)
        if mask is not None:
            check_mask(mask, tuple(shape))
            valid = mask
        valid = valid.expand(shape)
        mass = valid.to(dtype) / valid.sum(-1, keepdim=True)
    else:
        mass = _checked_weights(weights, mask, shape).to(dtype).expand(shape)
    # Features without mass may be NaN, which must not be multiplied by 0.
    return features.masked_fill((mass == 0).unsqueeze(-1), 0), prototypes, mass


def _checked_weights(weights: Tensor, mask: Tensor | None, shape: torch.Size) -> Tensor:
    if mask is not None:
        raise ValueError("weights and mask exclude each other: a weight of 0 leaves a feature out")
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        kind = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(f"weights must be a floating-point tensor, got {kind}")
    if not broadcasts_to(weights.shape, shape):
        raise ValueError(
            f"weights must broadcast to shape {tuple(shape)}, got {tuple(weights.shape)}"
        )
    # Reading a value from an accelerator would stall it.
    if weights.device.type == "cpu" and bool((weights < 0).any()):
        raise ValueError(f"weights must be at least 0, got {float(weights.min())}")
    return weights


def _nearest(features: Tensor, prototypes: Tensor) -> Tensor:
    """Index of the prototype nearest to each feature, int64 of shape (..., n)."""
    # No matrix product: its rounding could change which prototype is nearest.
    exact = "donot_use_mm_for_euclid_dist"
    with torch.no_grad():
        return torch.cdist(features, prototypes, compute_mode=exact).argmin(-1)


def _histogram(nearest: Tensor, mass: Tensor, count: int) -> Tensor:
    empty = mass.new_zeros(*mass.shape[:-1], count)
    return empty.scatter_add(-1, nearest, mass)
