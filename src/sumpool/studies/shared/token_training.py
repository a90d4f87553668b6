"""Learning tokens through a pooling, for several seeds at once.

The leading dimension of all tensors is the seed (G of them), so that the many small operations of a
step are launched once for all seeds. Each seed has its own generators: its samples do not depend on
the other seeds, and its results depend on them only through rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sumpool.studies.shared.token_problem import (
    TokenSettings,
    contrastive_loss,
    draw_samples,
    exact_distances,
    map_at_r,
)
from sumpool.transport import Exact, greedy_k_center, lipschitz_normalize, partial_transport

#: Poolings to compare.
METHODS = ("GAP", "GSP")
#: Half the default steps: costs below 1 at ε = 20 are solved to machine precision in three.
SOLVER = Exact(steps=5)


@dataclass(frozen=True)
class Learned:
    """Learned tensors of G seeds."""

    tokens: Tensor  #: Tokens of shape (G, T, d)
    prototypes: Tensor | None  #: GSP prototypes of shape (G, m, d); None for GAP

    def parameters(self) -> list[Tensor]:
        """Return the learned tensors."""
        return [self.tokens] if self.prototypes is None else [self.tokens, self.prototypes]

    def select(self, index: int) -> Learned:
        """Return a copy of one seed's tensors, without gradient, with G = 1."""
        parts = [tensor.detach()[index : index + 1].clone() for tensor in self.parameters()]
        return Learned(parts[0], parts[1] if len(parts) > 1 else None)


def start(settings: TokenSettings, method: str, generators: Sequence[torch.Generator]) -> Learned:
    """Initialize uniform tokens and, for GSP, prototypes picked among them.

    Prototypes are picked by greedy k-center over the tokens in random order, as by the pooling
    layer in its first batch, which contains all tokens with near certainty.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    shape = (settings.tokens, settings.dim)
    drawn = [torch.rand(shape, generator=generator) * 2 - 1 for generator in generators]
    tokens = settings.start * torch.stack(drawn)
    if method == "GAP":
        return Learned(tokens.requires_grad_(), None)
    orders = [torch.randperm(settings.tokens, generator=generator) for generator in generators]
    shuffled = _rows(tokens, torch.stack(orders))
    prototypes = _rows(shuffled, greedy_k_center(shuffled, settings.prototypes))
    return Learned(tokens.requires_grad_(), prototypes.requires_grad_())


def pool_samples(learned: Learned, samples: Tensor, mu: float, eps: float) -> tuple[Tensor, Tensor]:
    """Pool samples (G, B, n) by GSP, or by GAP without prototypes.

    Returns embeddings (G, B, d) and pooling weights (G, B, n).
    """
    features = _rows(learned.tokens, samples.flatten(1)).unflatten(1, samples.shape[1:])
    if learned.prototypes is None:
        weights = features.new_full((), 1 / samples.shape[-1]).expand(samples.shape)
        return features.mean(-2), weights
    # The weights depend on a feature only through ℓ = logsumexp_i(−ε c_i) (docs/derivation.md).
    # So ℓ is computed once per token, and one prototype at cost −ℓ/ε replaces all prototypes.
    cost = exact_distances(
        lipschitz_normalize(learned.tokens), lipschitz_normalize(learned.prototypes)
    )  # (G, T, m)
    soft_cost = (cost * -eps).logsumexp(-1, keepdim=True) / -eps  # (G, T, 1)
    per_feature = _rows(soft_cost, samples.flatten(1)).unflatten(1, samples.shape[1:])
    weights = partial_transport(per_feature, mu, eps, solver=SOLVER).weights
    return (weights.unsqueeze(-2) @ features).squeeze(-2), weights


def _rows(table: Tensor, indices: Tensor) -> Tensor:
    """Select rows of tables (G, T, d) at indices (G, k); returns (G, k, d)."""
    return table.gather(1, indices.unsqueeze(-1).expand(*indices.shape, table.shape[-1]))


@dataclass(frozen=True)
class Outcome:
    """Result of one seed, at the epoch of its best validation MAP@R."""

    seed: int
    learned: Learned  #: Tokens and prototypes, G = 1
    test: Tensor  #: Test samples of shape (1, B, n)
    history: list[float]  #: Validation MAP@R after every epoch
    best_epoch: int  #: Epoch of ``learned``, counted from 1
    duration_s: float  #: Seconds from the common start of all seeds to the end of this one


def train(
    settings: TokenSettings,
    method: str,
    seeds: Sequence[int],
    on_epoch: Callable[[float, int], None] = lambda best, learning: None,
) -> Iterator[Outcome]:
    """Learn tokens for all ``seeds`` at once; yield the outcome of each seed as it stops.

    ``on_epoch`` is called after every epoch with the mean over seeds of the best validation MAP@R
    and the number of seeds still learning.
    """
    begin = time.perf_counter()
    # Two streams per seed, so that both methods start from the same tokens and see the same samples
    # in the same order.
    sampling = [torch.Generator().manual_seed(2 * seed) for seed in seeds]
    starting = [torch.Generator().manual_seed(2 * seed + 1) for seed in seeds]

    def draw(per_class: int, count: int) -> Tensor:  # (count, G, B, n)
        return torch.stack([draw_samples(settings, per_class, g, count) for g in sampling], 1)

    (validation,) = draw(settings.validation_per_class, 1)
    (test,) = draw(settings.test_per_class, 1)
    labels = settings.labels(settings.per_class)
    validation_labels = settings.labels(settings.validation_per_class)
    margins = settings.positive_margin, settings.negative_margin

    learned = start(settings, method, starting)
    adam = torch.optim.Adam(learned.parameters(), lr=settings.learning_rate)
    best = [learned.select(index) for index in range(len(seeds))]
    history: list[list[float]] = [[] for _ in seeds]
    learning = list(range(len(seeds)))
    for epoch in range(1, settings.max_epochs + 1):
        for samples in draw(settings.per_class, settings.epoch_batches):
            embeddings, _ = pool_samples(learned, samples, settings.mu, settings.eps)
            # One sum for all seeds: each seed's tensors get the gradient of its own loss.
            loss = contrastive_loss(embeddings, labels, *margins).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
            with torch.no_grad():
                learned.tokens.clamp_(-settings.bound, settings.bound)
        with torch.no_grad():
            embeddings, _ = pool_samples(learned, validation, settings.mu, settings.eps)
            scores = map_at_r(embeddings, validation_labels).tolist()
        for index in list(learning):
            past = history[index]
            if not past or scores[index] > max(past):
                best[index] = learned.select(index)
            past.append(scores[index])
            best_epoch = 1 + past.index(max(past))
            if epoch - best_epoch >= settings.patience or epoch == settings.max_epochs:
                learning.remove(index)
                duration = time.perf_counter() - begin
                own_test = test[index : index + 1]
                yield Outcome(seeds[index], best[index], own_test, past, best_epoch, duration)
        on_epoch(sum(max(past) for past in history) / len(history), len(learning))
        if not learning:
            return
