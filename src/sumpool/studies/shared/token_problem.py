"""The token problem: samples mixed from tokens, the loss that learns them, and their MAP@R."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenSettings:
    """Settings of the problem of [thesis, sec. 5.3.1], including those the text leaves open."""

    classes: int = 16
    own: int = 4  #: Tokens per class
    shared: int = 4  #: Background tokens shared by all classes
    length: int = 50  #: Tokens per sample
    ratio_mean: float = 0.5  #: Mean share of a sample drawn from the tokens of its class
    ratio_std: float = 0.1  #: Standard deviation of that share
    bound: float = 0.3  #: Token coordinates are clamped to ± this
    start: float = 0.1  #: Initial tokens are uniform within ± this (not in the text)
    dim: int = 2  #: Dimension of the tokens; 2, so that hulls can be drawn
    prototypes: int = 16  #: Number m of prototypes of GSP (not in the text)
    mu: float = 0.3  #: Share μ of GSP (not in the text; 0.3 is its value for images)
    eps: float = 20.0  #: Inverse smoothing ε of GSP (not in the text)
    positive_margin: float = 0.0  #: Distance m⁺ below which positive pairs cost nothing
    #: Distance m⁻ above which negative pairs cost nothing (not in the text): the spacing of 16
    #: points on a 4×4 grid that fills the square.
    negative_margin: float = 0.2
    #: Learning rate of Adam, with default betas, for tokens and prototypes.
    learning_rate: float = 1e-4
    per_class: int = 4  #: Samples per class in a batch
    epoch_batches: int = 100  #: Batches per epoch; samples are drawn afresh for each
    patience: int = 30  #: Epochs without a better validation MAP@R before training stops
    max_epochs: int = 80  #: Maximum number of epochs
    validation_per_class: int = 32  #: Validation samples per class
    test_per_class: int = 64  #: Test samples per class
    #: A token is active in a class if its mean weight in the class's samples is at least this share
    #: of an equal weight, 1 / (own + shared).
    active: float = 0.5

    @property
    def tokens(self) -> int:
        """Total number of tokens; those of class c begin at ``c * own``, shared tokens are last."""
        return self.classes * self.own + self.shared

    def labels(self, per_class: int) -> Tensor:
        """Return the labels of ``per_class`` samples per class, (classes · per_class,)."""
        return torch.arange(self.classes).repeat_interleave(per_class)


def draw_samples(
    settings: TokenSettings, per_class: int, generator: torch.Generator, count: int = 1
) -> Tensor:
    """Draw ``count`` batches of samples as token indices, int64 (count, B, length).

    The B samples have the labels of :meth:`TokenSettings.labels`. Poolings ignore the order within
    a sample.
    """
    labels = settings.labels(per_class)
    shape = (count, len(labels), settings.length)
    ratio = settings.ratio_mean + settings.ratio_std * torch.randn(
        count, len(labels), 1, generator=generator
    )
    from_class = torch.arange(settings.length) < (ratio.clamp(0, 1) * settings.length).round()
    own = torch.randint(settings.own, shape, generator=generator)
    own += settings.own * labels.unsqueeze(-1)
    shared = torch.randint(settings.shared, shape, generator=generator)
    return torch.where(from_class, own, settings.classes * settings.own + shared)


def contrastive_loss(
    embeddings: Tensor, labels: Tensor, positive: float, negative: float
) -> Tensor:
    """Contrastive loss on distances: (d⁺ − m⁺)₊ and (m⁻ − d⁻)₊, means of the non-zero terms.

    Takes embeddings (G, B, d) with labels (B,); returns one loss for each of the G problems, (G,).
    """
    distances = exact_distances(embeddings, embeddings)  # (G, B, B)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    others = ~torch.eye(len(labels), dtype=torch.bool)
    pulled = (distances - positive).clamp_min(0) * (same & others)
    pushed = (negative - distances).clamp_min(0) * ~same
    return _mean_of_nonzero(pulled) + _mean_of_nonzero(pushed)


def _mean_of_nonzero(terms: Tensor) -> Tensor:
    return terms.sum((-2, -1)) / (terms > 0).sum((-2, -1)).clamp_min(1)


def exact_distances(a: Tensor, b: Tensor) -> Tensor:
    """Compute distances (..., n, m) of points (..., n, d) and (..., m, d) from their differences.

    A matrix product would be faster, but embeddings of a class end up so close that its rounding
    errors would change their order.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def map_at_r(embeddings: Tensor, labels: Tensor) -> Tensor:
    """MAP@R = mean over queries of (1/R) Σ_{k≤R} [hit at k] · P@k, with every sample as a query.

    Takes embeddings (..., B, d) with labels (B,), R + 1 ≥ 2 samples per class; returns shape (...).
    """
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    relevant = same.sum(1) - 1
    r = int(relevant[0])
    if r < 1 or not bool((relevant == r).all()):
        raise ValueError("labels must hold every class equally often, at least twice")
    distances = exact_distances(embeddings, embeddings)
    distances.diagonal(dim1=-2, dim2=-1).fill_(math.inf)  # a query does not retrieve itself
    nearest = distances.topk(r, largest=False).indices  # (..., B, R)
    hits = (labels[nearest] == labels.unsqueeze(-1)).to(embeddings.dtype)
    precision = hits.cumsum(-1) / torch.arange(1, r + 1)
    return (hits * precision).mean((-2, -1))
