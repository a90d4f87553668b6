"""Training several seeds at once is training each of them with the layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sumpool.pooling import GeneralizedSumPool1d, GlobalAveragePool1d
from sumpool.studies.shared.token_problem import TokenSettings, draw_samples, exact_distances
from sumpool.studies.shared.token_training import Learned, pool_samples, start, train

SMALL = TokenSettings(
    epoch_batches=4, max_epochs=3, validation_per_class=4, test_per_class=4, learning_rate=1e-2
)
MU, EPS = SMALL.mu, SMALL.eps


def three_problems() -> tuple[Learned, torch.Tensor]:
    """Three seeds' problems in float64, so that they are compared to more than single precision."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(3)]
    single = start(replace(SMALL, start=0.3), "GSP", generators)
    parts = [part.detach().double().requires_grad_() for part in single.parameters()]
    learned = Learned(*parts)
    samples = torch.stack([draw_samples(SMALL, 2, generator)[0] for generator in generators])
    return learned, samples


def test_pooling_seeds_at_once_is_the_layer_with_each_seed() -> None:
    learned, samples = three_problems()
    assert learned.prototypes is not None
    embeddings, weights = pool_samples(learned, samples, MU, EPS)
    direction = torch.randn_like(embeddings)
    (embeddings * direction).sum().backward()
    assert learned.tokens.grad is not None
    assert learned.prototypes.grad is not None
    for index in range(3):
        layer = GeneralizedSumPool1d(
            2, SMALL.prototypes, MU, EPS, init="random", dtype=torch.float64
        )
        layer.prototypes.data.copy_(learned.prototypes[index])
        tokens = learned.tokens[index].detach().clone().requires_grad_()
        expected = layer.pool(tokens[samples[index]])
        (expected.embedding * direction[index]).sum().backward()
        torch.testing.assert_close(weights[index], expected.weights, atol=1e-9, rtol=1e-6)
        torch.testing.assert_close(embeddings[index], expected.embedding, atol=1e-9, rtol=1e-6)
        for own, of_layer in (
            (learned.tokens.grad[index], tokens.grad),
            (learned.prototypes.grad[index], layer.prototypes.grad),
        ):
            torch.testing.assert_close(own, of_layer, atol=1e-7, rtol=1e-5)


def test_without_prototypes_samples_are_averaged() -> None:
    learned, samples = three_problems()
    embeddings, weights = pool_samples(Learned(learned.tokens, None), samples, MU, EPS)
    for index in range(3):
        features = learned.tokens[index][samples[index]]
        torch.testing.assert_close(embeddings[index], GlobalAveragePool1d()(features))
    assert (weights == 1 / SMALL.length).all()


def test_prototypes_start_on_tokens_that_cover_the_others() -> None:
    learned, _ = three_problems()
    assert learned.prototypes is not None
    distances = exact_distances(learned.prototypes, learned.tokens).detach()
    assert distances.amin(-1).max() == 0
    apart = exact_distances(learned.prototypes, learned.prototypes).detach()
    apart.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    # No token is farther from the prototypes than these are from each other.
    assert (distances.amin(1).amax(-1) <= apart.amin((-2, -1)) + 1e-6).all()


@pytest.mark.parametrize("method", ["GAP", "GSP"])
def test_a_seed_learns_the_same_alone_and_beside_others(method: str) -> None:
    together = {outcome.seed: outcome for outcome in train(SMALL, method, [0, 1, 2])}
    (alone,) = train(SMALL, method, [1])
    torch.testing.assert_close(
        together[1].learned.tokens, alone.learned.tokens, atol=1e-4, rtol=1e-3
    )
    assert (together[1].test == alone.test).all()
    assert together[1].history == pytest.approx(alone.history, abs=0.02)
    assert together[0].history != together[1].history


def test_both_methods_start_from_the_same_tokens_and_meet_the_same_samples() -> None:
    still = replace(SMALL, learning_rate=0.0)
    (gap,), (gsp,) = train(still, "GAP", [7]), train(still, "GSP", [7])
    assert torch.equal(gap.learned.tokens, gsp.learned.tokens)
    assert torch.equal(gap.test, gsp.test)


@pytest.mark.parametrize("method", ["GAP", "GSP"])
def test_tokens_stay_within_their_bound(method: str) -> None:
    (outcome,) = train(replace(SMALL, learning_rate=0.5), method, [0])
    assert outcome.learned.tokens.abs().max() <= SMALL.bound


def test_training_stops_when_patience_is_used_up() -> None:
    still = replace(SMALL, learning_rate=0.0, patience=2, max_epochs=9)
    (outcome,) = train(still, "GAP", [0])
    assert outcome.best_epoch == 1
    assert len(outcome.history) == 1 + 2
    assert len(set(outcome.history)) == 1


def test_every_seed_is_yielded_once_and_epochs_are_reported() -> None:
    epochs: list[tuple[float, int]] = []
    outcomes = list(train(SMALL, "GAP", [3, 5], lambda best, left: epochs.append((best, left))))
    assert [outcome.seed for outcome in outcomes] == [3, 5]
    assert [left for _, left in epochs] == [2, 2, 0]
    assert all(len(outcome.history) == 3 for outcome in outcomes)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method must be one of GAP, GSP, got 'GMP'"):
        list(train(SMALL, "GMP", [0]))
