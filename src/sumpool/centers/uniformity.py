"""Measures of how uniformly centers are distributed on the sphere."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sumpool.centers.arguments import check_centers
from sumpool.centers.means import smooth_mean
from sumpool.centers.pairs import distance, rowwise
from sumpool.transport.validation import solve_dtype


class CenterUniformity(NamedTuple):
    """Measures of uniformity over pairs of centers of different classes.

    Attributes:
        mean_cosine: Mean cosine.
        nearest_cosine: Mean over centers of the largest cosine; lower is more uniform.
        mean_distance: Mean distance.
        uniformity: log mean e^{−2 d²} [uniformity]; lower is more uniform, −4 for orthogonal
            centers.
    """

    mean_cosine: float
    nearest_cosine: float
    mean_distance: float
    uniformity: float


@torch.no_grad()
def center_uniformity(centers: Tensor) -> CenterUniformity:
    """Measure the uniformity of ``centers`` (C, D) or (C, K, D), ℓ2-normalized first.

    All pairs of different classes are compared in blocks: time grows with (C·K)², but memory does
    not.

    Example:
        >>> measures = center_uniformity(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
        >>> round(measures.mean_cosine, 4), measures.nearest_cosine
        (-0.3333, 0.0)
        >>> round(measures.mean_distance, 4), round(measures.uniformity, 4)
        (1.6095, -4.3963)
    """
    check_centers(centers)
    centers = centers.unsqueeze(1) if centers.ndim == 2 else centers
    with torch.autocast(centers.device.type, enabled=False):
        unit = F.normalize(centers.to(solve_dtype(centers)), dim=-1)

        def row(s: Tensor, counts: Tensor) -> Tensor:
            # uniformity: −2 d² = 4s − 4; rows are averaged since all have the same number of pairs.
            of_pairs = ((s, 0.0), (s, math.inf), (distance(s), 0.0), (4 * s - 4, 1.0))
            return torch.stack([smooth_mean(x, lam, -1, counts) for x, lam in of_pairs], -1)

        cosine, nearest, apart, crowding = rowwise(unit, row).unbind(-1)  # (C·K,) each
        return CenterUniformity(
            mean_cosine=float(cosine.mean()),
            nearest_cosine=float(nearest.mean()),
            mean_distance=float(apart.mean()),
            uniformity=float(smooth_mean(crowding, 1.0, -1)),
        )
