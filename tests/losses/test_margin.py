"""The margin loss with its learned boundaries, pair by pair."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from losses.batches import LABELS, embeddings_of, small_loss
from losses.naive_losses import dist, mean
from sumpool.losses import MarginLoss


def naive_margin(x: Tensor, y: list[int], beta: Tensor, alpha: float, nu: float) -> Tensor:
    positive, negative = [], []
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j and y[i] == y[j]:
                positive.append(dist(x[i], x[j]) - beta[y[i]] + alpha)
            elif i != j:
                negative.append(beta[y[i]] + alpha - dist(x[i], x[j]))
    terms = [[it for it in side if bool(it > 0)] for side in (positive, negative)]
    return mean(terms[0], x) + mean(terms[1], x) + nu * mean([beta[c] for c in y], x)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("nu", [0.0, 0.3])
def test_the_margin_loss_equals_its_formula(labels: list[int], nu: float) -> None:
    x = embeddings_of(labels).requires_grad_()
    loss = small_loss("margin", nu=nu)
    (beta,) = loss.proxy_parameters()
    with torch.no_grad():
        beta += torch.linspace(-0.3, 0.2, len(beta))
    got, expected = loss(x, torch.tensor(labels)), naive_margin(x, labels, beta, 0.2, nu)
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)
    found, wanted = (torch.autograd.grad(it, [x, beta]) for it in (got, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)


def test_with_one_boundary_for_all_it_is_c2() -> None:
    labels = LABELS["mixed up"]
    x, y = embeddings_of(labels), torch.tensor(labels)
    c2 = small_loss("c2", pos_margin=0.9, neg_margin=1.3)
    torch.testing.assert_close(small_loss("margin", alpha=0.2, beta=1.1)(x, y), c2(x, y))


def test_boundaries_have_no_centers_and_take_no_miner() -> None:
    loss = small_loss("margin")
    assert isinstance(loss.loss, MarginLoss)
    with pytest.raises(ValueError, match="the loss margin has no proxies"):
        loss.centers()
    x, y = embeddings_of([0, 0, 1]), torch.tensor([0, 0, 1])
    with pytest.raises(ValueError, match="indices_tuple must be None"):
        loss(x, y, (y, y, y))
