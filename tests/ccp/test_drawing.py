"""Pools of images, and the proxies that are picked among them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sumpool.ccp import draw_pool, redraw_proxies


def naive(proxies: Tensor, pool: Tensor, mask: Tensor) -> Tensor:
    """Algorithm 2, one class and one pick after the other."""
    out = torch.empty_like(proxies)
    for c in range(len(proxies)):
        left = [j for j in range(pool.shape[1]) if mask[c, j]]
        chosen = list(proxies[c])
        for k in range(proxies.shape[1]):
            far = [min(float((pool[c, j] - v).norm()) for v in chosen) for j in left]
            pick = left.pop(far.index(max(far)))
            chosen.append(pool[c, pick])
            out[c, k] = pool[c, pick]
    return out


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(0, 4), st.integers(1, 3), st.integers(0, 999)
)
def test_new_proxies_are_those_of_algorithm_2(
    classes: int, count: int, more: int, size: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    proxies = torch.randn(classes, count, size, generator=generator, dtype=torch.float64)
    pool = torch.randn(classes, count + more, size, generator=generator, dtype=torch.float64)
    mask = torch.rand(classes, count + more, generator=generator) < 0.7
    mask[:, :count] = True
    assert torch.equal(redraw_proxies(proxies, pool, mask), naive(proxies, pool, mask))


def test_a_pool_of_as_many_images_as_proxies_is_taken_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    proxies, pool = (torch.randn(5, 3, 4, generator=generator) for _ in range(2))
    found = redraw_proxies(proxies, pool)
    for own, wanted in zip(found, pool, strict=True):
        assert {tuple(row.tolist()) for row in own} == {tuple(row.tolist()) for row in wanted}


CLASSES = torch.tensor([0] * 7 + [2] * 3 + [1] * 5 + [0] * 2 + [3])


def test_a_pool_has_images_of_each_class_and_none_twice() -> None:
    pool = draw_pool(CLASSES, 4, size=5, least=1, seed=0)
    assert pool.mask.sum(1).tolist() == [5, 5, 3, 1]
    for label, (indices, mask) in enumerate(zip(*pool, strict=True)):
        own = indices[mask]
        assert (CLASSES[own] == label).all()
        assert len(own.unique()) == len(own)


def test_a_class_too_small_gives_images_twice() -> None:
    pool = draw_pool(CLASSES, 4, size=5, least=4, seed=0)
    assert pool.mask.sum(1).tolist() == [5, 5, 4, 4]
    assert len(pool.indices[2][pool.mask[2]].unique()) == 3
    assert (CLASSES[pool.indices[3]] == 3).all()


def test_pools_depend_on_the_seed_alone() -> None:
    first = draw_pool(CLASSES, 4, size=3, least=1, seed=(3, 1))
    torch.manual_seed(5)
    assert torch.equal(first.indices, draw_pool(CLASSES, 4, size=3, least=1, seed=(3, 1)).indices)
    other = draw_pool(CLASSES, 4, size=3, least=1, seed=(3, 2))
    assert not torch.equal(first.indices, other.indices)


def test_every_image_comes_as_often() -> None:
    counts = torch.zeros(len(CLASSES))
    for seed in range(2000):
        pool = draw_pool(CLASSES, 4, size=3, least=1, seed=seed)
        counts[pool.indices[pool.mask]] += 1
    # Three of nine in class 0, three of five in class 1, all in classes 2 and 3.
    expected = torch.tensor([3 / 9, 3 / 5, 1.0, 1.0])[CLASSES]
    assert torch.allclose(counts / 2000, expected, atol=0.05)


def test_a_class_without_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"every number in 0\.\.4 at least once"):
        draw_pool(CLASSES, 5, size=3, least=1, seed=0)
    with pytest.raises(ValueError, match="least must lie between 1 and size = 3, got 4"):
        draw_pool(CLASSES, 4, size=3, least=4, seed=0)
