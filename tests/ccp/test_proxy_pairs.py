"""Images compared with proxies: the pair losses of the catalog, by their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sumpool.ccp import ProxyPairs
from sumpool.losses import build_loss

CLASSES, PROXIES, SIZE, BATCH = 3, 2, 4, 6


def parts(
    name: str, batch_weight: float = 0.0, seed: int = 0
) -> tuple[ProxyPairs, Tensor, Tensor, Tensor]:
    """A loss with proxies, some of them outside the ball, and a batch inside it."""
    generator = torch.Generator().manual_seed(seed)
    base = build_loss(name, num_classes=CLASSES, embedding_size=SIZE, normalize=False)
    pairs = ProxyPairs(base, CLASSES, SIZE, PROXIES, batch_weight).double()
    drawn = torch.randn(CLASSES, PROXIES, SIZE, generator=generator, dtype=torch.float64)
    pairs.set(drawn * 0.6)
    x = torch.randn(BATCH, SIZE, generator=generator, dtype=torch.float64) * 0.4
    proxies = drawn.flatten(0, 1) * 0.6
    proxies = torch.stack([p / max(1.0, float(p.norm())) for p in proxies])
    return pairs, x, torch.tensor([0, 1, 2, 0, 1, 2]), proxies


def of(place: int) -> int:
    """The class of a proxy."""
    return place // PROXIES


def test_c2_takes_distances_of_vectors_as_they_are() -> None:
    pairs, x, y, p = parts("c2")
    positive, negative = [], []
    for i in range(BATCH):
        for j in range(len(p)):
            d = float((x[i] - p[j]).norm())
            if int(y[i]) == of(j):
                positive.append(max(0.0, d - 0.0))
            else:
                negative.append(max(0.0, 0.3841 - d))
    expected = sum(
        sum(terms) / max(1, sum(it > 0 for it in terms)) for terms in (positive, negative)
    )
    assert pairs(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_c1_takes_inner_products() -> None:
    pairs, x, y, p = parts("c1")
    total = 0.0
    for i in range(BATCH):
        for j in range(len(p)):
            s = float(x[i] @ p[j])
            total += max(0.0, 1.0 - s) if int(y[i]) == of(j) else max(0.0, s - 0.5)
    assert pairs(x, y).item() == pytest.approx(total / BATCH, rel=1e-9)


def test_ms_takes_inner_products() -> None:
    pairs, x, y, p = parts("ms")
    terms = []
    for i in range(BATCH):
        s = x[i] @ p.T
        same = torch.tensor([of(j) == int(y[i]) for j in range(len(p))])
        pull = torch.log1p(torch.exp(-2.0 * (s[same] - 0.5)).sum()) / 2.0
        push = torch.log1p(torch.exp(40.0 * (s[~same] - 0.5)).sum()) / 40.0
        terms.append(pull + push)
    assert pairs(x, y).item() == pytest.approx(float(torch.stack(terms).mean()), rel=1e-9)


def test_triplets_have_two_proxies() -> None:
    pairs, x, y, p = parts("triplet")
    terms = []
    for i in range(BATCH):
        for j in range(len(p)):
            for k in range(len(p)):
                if of(j) == int(y[i]) != of(k):
                    d = (x[i] - p[j]).norm() - (x[i] - p[k]).norm() + 0.0961
                    terms.append(max(0.0, float(d)))
    expected = sum(terms) / sum(it > 0 for it in terms)
    assert pairs(x, y).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["c1", "c2", "ms", "triplet"])
def test_the_pairs_inside_the_batch_come_with_their_weight(name: str) -> None:
    alone, x, y, _ = parts(name)
    both, *_ = parts(name, batch_weight=0.1)
    assert torch.isclose(both(x, y), alone(x, y) + 0.1 * alone.loss(x, y))


@pytest.mark.parametrize("name", ["c1", "c2", "ms", "triplet"])
def test_proxies_and_embeddings_both_get_gradients(name: str) -> None:
    pairs, x, y, _ = parts(name)
    x.requires_grad_()

    def loss(x: Tensor, proxies: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(pairs, {"proxies": proxies}, (x, y))
        return found

    assert torch.autograd.gradcheck(loss, (x, pairs.proxies))
    (own,) = torch.autograd.grad(pairs(x, y), pairs.proxies)
    assert own.abs().sum() > 0


def test_proxies_beyond_the_ball_are_brought_to_its_edge() -> None:
    pairs, *_ = parts("c2")
    norms = pairs.centers().norm(dim=-1)
    assert bool((norms <= 1 + 1e-12).all())
    inside = pairs.proxies.norm(dim=-1) <= 1
    assert torch.equal(pairs.centers()[inside], pairs.proxies[inside])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"proxies_per_class": 0}, "proxies_per_class must be at least 1, got 0"),
        ({"batch_weight": -1.0}, "batch_weight must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, float], complaint: str) -> None:
    base = build_loss("c2", num_classes=3, embedding_size=4)
    with pytest.raises(ValueError, match=complaint):
        ProxyPairs(base, **{"num_classes": 3, "embedding_size": 4, **options})  # type: ignore[arg-type]


def test_miners_are_refused() -> None:
    pairs, x, y, _ = parts("c2")
    with pytest.raises(ValueError, match="indices_tuple must be None"):
        pairs(x, y, (y, y, y))


def test_proxies_of_another_shape_are_refused() -> None:
    pairs, *_ = parts("c2")
    with pytest.raises(ValueError, match=r"proxies must have shape \(3, 2, 4\), got \(3, 1, 4\)"):
        pairs.set(torch.zeros(3, 1, 4))


@pytest.mark.parametrize(("shift", "wrong"), [(100, 102), (-1, -1)])
def test_labels_of_other_classes_are_refused(shift: int, wrong: int) -> None:
    pairs, x, y, _ = parts("c1")
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.2 .*, got {wrong}"):
        pairs(x, y + shift)
