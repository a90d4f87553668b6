"""The token problem: samples mixed from tokens, the loss they are learned by, and its measure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenSettings:
    """The problem of [thesis, sec. 5.3.1], with what the text leaves open."""

    classes: int = 16
    own: int = 4  #: Tokens of each class
    shared: int = 4  #: Background tokens that all classes share
    length: int = 50  #: Tokens in a sample
    ratio_mean: float = 0.5  #: Mean of the share of a sample that is drawn from its class's tokens
    ratio_std: float = 0.1  #: Standard deviation of that share
    bound: float = 0.3  #: Every coordinate of a token is kept within ± this
    start: float = 0.1  #: Tokens start uniform within ± this (not in the text)
    dim: int = 2  #: Dimension of the tokens; 2, so that hulls can be drawn
    prototypes: int = 16  #: Number m of prototypes of GSP (not in the text)
    mu: float = 0.3  #: Share μ of GSP (not in the text; 0.3 is its value for images)
    eps: float = 20.0  #: Inverse smoothing ε of GSP (not in the text)
    positive_margin: float = 0.0  #: Distance m⁺ below which positive pairs cost nothing
    #: Distance m⁻ above which negative pairs cost nothing (not in the text): the largest that 16
    #: points in the square keep on a 4×4 grid.
    negative_margin: float = 0.2
    #: Of Adam, its betas left at their defaults; for tokens and prototypes.
    learning_rate: float = 1e-4
    per_class: int = 4  #: Samples of each class in a batch
    epoch_batches: int = 100  #: Batches in an epoch: what an epoch is, samples being drawn afresh
    patience: int = 30  #: Epochs without a better validation MAP@R after which training stops
    max_epochs: int = 80  #: Epochs after which it stops in any case
    validation_per_class: int = 32  #: Validation samples of each class
    test_per_class: int = 64  #: Test samples of each class
    #: A token is active in a class if its mean weight in the class's samples is at least this share
    #: of an equal one, 1 / (own + shared).
    active: float = 0.5

    @property
    def tokens(self) -> int:
        """Number of tokens in all; those of class c begin at ``c * own``, shared ones are last."""
        return self.classes * self.own + self.shared

    def labels(self, per_class: int) -> Tensor:
        """Labels of ``per_class`` samples of each class, of shape (classes · per_class,)."""
        return torch.arange(self.classes).repeat_interleave(per_class)


def draw_samples(
    settings: TokenSettings, per_class: int, generator: torch.Generator, count: int = 1
) -> Tensor:
    """Draw ``count`` batches of samples.

    Returns:
        Indices of tokens, int64 of shape (count, B, length), for B samples labelled as
        :meth:`TokenSettings.labels` says. The order within a sample means nothing to a pooling.
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

    Returns:
        One loss for each of the G problems, of shape (G,).
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
    """Distances (..., n, m) between points (..., n, d) and (..., m, d), by their differences.

    A matrix product would be faster, but embeddings of a class end up so close that its rounding
    would blur their order.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def map_at_r(embeddings: Tensor, labels: Tensor) -> Tensor:
    """MAP@R = mean over queries of (1/R) Σ_{k≤R} [hit at k] · P@k, every sample being a query.

    Of embeddings (..., B, d) with labels (B,), each class with R + 1 ≥ 2 samples; of shape (...).
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
