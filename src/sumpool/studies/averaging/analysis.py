"""Analysis of a pooling by prototypes: cover, convex combinations, class hulls."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sumpool.evaluation import retrieval_metrics
from sumpool.pooling import AveragePoolingError, average_pooling_error, prototype_combination
from sumpool.studies.shared.hulls import HullOverlap, hull_overlap
from sumpool.studies.shared.spacing import evenly_spaced
from sumpool.transport import greedy_k_center, lipschitz_normalize

#: Rounding tolerance of the bounds, in float64 and for vectors in the unit ball.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Analysis:
    """Analysis of a pooling by prototypes; vectors are scaled into the unit ball, in float64."""

    scale: float  #: Length of the longest local feature, by which all were divided
    features: Tensor  #: Local features (N, n, 2)
    labels: Tensor  #: Classes of the images (N,)
    prototypes: Tensor  #: Prototypes ν (m, 2), picked among the local features
    pooled: Tensor  #: Σ_j w_j f_j of each image (N, 2)
    combined: Tensor  #: Σ_i p*_i ν_i of each image (N, 2)
    #: Distance between ``pooled`` and ``combined``, its bounds, and the histograms (N, m).
    found: AveragePoolingError
    shares: Tensor  #: Mean histogram of each class (C, m)

    @property
    def delta(self) -> float:
        """Covering radius δ: the largest distance from a local feature to its nearest prototype."""
        return float(self.found.radius.max())

    def bound_holds(self) -> Tensor:
        """Return whether error ≤ mean distance ≤ δ, for each image (N,)."""
        error, distance = self.found.error, self.found.distance
        return (error <= distance + ROUNDING) & (distance <= self.delta + ROUNDING)

    def active(self, least: float = 0.0) -> Tensor:
        """Return whether a class has more than ``least`` of its histogram on a prototype, (C, m).

        At 0, a single local feature makes a prototype active [thesis, fig. 4.3].
        """
        return self.shares > least

    def prototype_hulls(self, least: float = 0.0) -> HullOverlap:
        """Compute the hulls of the active prototypes of each class."""
        active = self.active(least)
        classes, chosen = active.nonzero(as_tuple=True)
        return hull_overlap(self.prototypes[chosen].numpy(), classes.numpy())

    def embedding_hulls(self) -> HullOverlap:
        """Compute the hulls of the embeddings of each class."""
        return hull_overlap(self.pooled.numpy(), self.labels.numpy())


def analyze(features: Tensor, weights: Tensor, labels: Tensor, count: int) -> Analysis:
    """Cover local features (N, n, 2) by at most ``count`` prototypes and pool by these.

    The pooling weights (N, n) sum to 1 for each image.
    """
    features, weights = features.double(), weights.double()
    # In lower precision, they summed to 1 only up to rounding.
    weights = weights / weights.sum(-1, keepdim=True)
    scale = float(torch.linalg.vector_norm(features, dim=-1).max())
    features = features / scale
    points = features.flatten(0, 1)
    prototypes = points[greedy_k_center(points, min(count, len(points)))]
    found = average_pooling_error(features, prototypes, weights=weights)
    classes = labels.unique()
    return Analysis(
        scale,
        features,
        labels,
        prototypes,
        pooled=(weights.unsqueeze(-1) * features).sum(1),
        combined=prototype_combination(features, prototypes, weights=weights),
        found=found,
        shares=torch.stack([found.histogram[labels == it].mean(0) for it in classes]),
    )


def measures(analysis: Analysis, main_share: float) -> dict[str, float]:
    """Return the metrics; main prototypes have more than ``main_share`` of a class."""
    error, holds = analysis.found.error, analysis.bound_holds()
    hulls, main = analysis.prototype_hulls(), analysis.prototype_hulls(main_share)
    embedded = analysis.embedding_hulls()
    active, mainly = analysis.active(), analysis.active(main_share)
    return {
        "pooled_map_at_r": _retrieval(analysis, analysis.pooled),
        "combined_map_at_r": _retrieval(analysis, analysis.combined),
        "scale": analysis.scale,
        "delta": analysis.delta,
        "distance_mean": float(analysis.found.distance.mean()),
        "error_mean": float(error.mean()),
        "error_max": float(error.max()),
        "squared_error_max": float(error.max()) ** 2,
        "bound_holds": float(holds.double().mean()),
        "overlap_mean": hulls.mean_overlap,
        "overlapping_pairs": hulls.overlapping_pairs,
        "active_prototypes_mean": _mean_count(active),
        "shared_prototypes": _shared(active),
        "main_overlap_mean": main.mean_overlap,
        "main_prototypes_mean": _mean_count(mainly),
        "main_shared_prototypes": _shared(mainly),
        "embedding_overlap_mean": embedded.mean_overlap,
        "embedding_overlapping_pairs": embedded.overlapping_pairs,
        "inside_others": embedded.samples_inside_others,
    }


def typical_images(analysis: Analysis, count: int) -> list[int]:
    """Return the image with the median error of each of ``count`` evenly spaced classes."""
    classes = analysis.labels.unique()
    chosen = []
    for label in classes[evenly_spaced(len(classes), count)]:
        own = (analysis.labels == label).nonzero()[:, 0]
        chosen.append(int(own[analysis.found.error[own].argsort()[(len(own) - 1) // 2]]))
    return chosen


def _retrieval(analysis: Analysis, vectors: Tensor) -> float:
    """Return MAP@R by ``vectors`` (N, 2), scaled back and normalized into the ball as usual."""
    embeddings = lipschitz_normalize(analysis.scale * vectors).float()
    return retrieval_metrics(embeddings, analysis.labels)["mean_average_precision_at_r"]


def _mean_count(active: Tensor) -> float:
    return float(active.sum(1).double().mean())


def _shared(active: Tensor) -> float:
    """Return the share of prototypes that at least two classes use."""
    return float((active.sum(0) > 1).double().mean())
