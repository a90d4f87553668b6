"""The token problem: samples, loss and measure against naive loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sumpool.studies.shared.token_problem import (
    TokenSettings,
    contrastive_loss,
    draw_samples,
    map_at_r,
)

SETTINGS = TokenSettings()


def naive_map_at_r(embeddings: Tensor, labels: Tensor) -> float:
    total = 0.0
    for query in range(len(labels)):
        others = [other for other in range(len(labels)) if other != query]
        others.sort(key=lambda other: math.dist(embeddings[query], embeddings[other]))
        relevant = sum(bool(labels[other] == labels[query]) for other in others)
        hits, score = 0, 0.0
        for k, other in enumerate(others[:relevant], 1):
            if labels[other] == labels[query]:
                hits += 1
                score += hits / k
        total += score / relevant
    return total / len(labels)


def naive_contrastive(
    embeddings: Tensor, labels: Tensor, positive: float, negative: float
) -> float:
    pulled, pushed = [], []
    for i in range(len(labels)):
        for j in range(len(labels)):
            distance = math.dist(embeddings[i], embeddings[j])
            if i != j and labels[i] == labels[j]:
                pulled.append(distance - positive)
            elif i != j:
                pushed.append(negative - distance)

    def mean(terms: list[float]) -> float:
        counted = [term for term in terms if term > 0]
        return sum(counted) / max(1, len(counted))

    return mean(pulled) + mean(pushed)


def test_a_sample_holds_tokens_of_its_class_and_of_the_background_only() -> None:
    samples = draw_samples(SETTINGS, 8, torch.Generator().manual_seed(0), count=3)
    labels = SETTINGS.labels(8)
    assert samples.shape == (3, 16 * 8, 50)
    of_class = samples < 64
    assert (samples < 68).all()
    assert (samples // 4 == labels[:, None])[of_class].all()
    assert samples.unique().tolist() == list(range(68))


def test_the_share_of_class_tokens_is_normal_around_one_half() -> None:
    samples = draw_samples(SETTINGS, 500, torch.Generator().manual_seed(0))
    share = (samples < 64).double().mean(-1)
    assert share.mean() == pytest.approx(0.5, abs=0.005)
    assert share.std() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("seed", range(2))
def test_map_at_r_is_that_of_a_naive_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat_interleave(6)[torch.randperm(24, generator=generator)]
    embeddings = torch.randn(3, 24, 2, generator=generator) + labels[:, None]
    expected = [naive_map_at_r(each, labels) for each in embeddings]
    assert map_at_r(embeddings, labels).tolist() == pytest.approx(expected)


def test_map_at_r_is_one_for_classes_apart() -> None:
    labels = torch.arange(16).repeat_interleave(4)
    embeddings = torch.stack([labels.float(), torch.rand(64) / 4], -1)
    assert map_at_r(embeddings, labels) == 1


def test_map_at_r_refuses_what_has_no_common_r() -> None:
    for labels in ([0, 0, 1], [0, 1, 2]):
        with pytest.raises(ValueError, match="labels must hold every class equally often"):
            map_at_r(torch.rand(3, 2), torch.tensor(labels))


@pytest.mark.parametrize("margins", [(0.0, 0.2), (0.3, 1.0), (5.0, 0.0)])
def test_contrastive_loss_is_that_of_a_naive_loop(margins: tuple[float, float]) -> None:
    labels = torch.arange(3).repeat_interleave(4)
    embeddings = torch.randn(2, 12, 2)
    expected = [naive_contrastive(each, labels, *margins) for each in embeddings]
    assert contrastive_loss(embeddings, labels, *margins).tolist() == pytest.approx(expected)


def test_contrastive_loss_has_a_finite_gradient_for_equal_samples() -> None:
    embeddings = torch.zeros(1, 4, 2, requires_grad=True)
    contrastive_loss(embeddings, torch.tensor([0, 0, 1, 1]), 0.0, 0.2).sum().backward()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
