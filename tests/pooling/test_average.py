"""Average pooling, and generalized sum pooling as its generalization."""

from __future__ import annotations

import pytest
import torch

from pooling.layers import gsp1d, gsp2d, maps, tokens
from sumpool import GlobalAveragePool1d, GlobalAveragePool2d
from transport.generators import random_mask


def test_average_pooling_is_the_mean() -> None:
    torch.testing.assert_close(GlobalAveragePool2d()(maps()), maps().mean((2, 3)))
    torch.testing.assert_close(GlobalAveragePool1d()(tokens()), tokens().mean(1))


def test_average_pooling_is_the_mean_of_valid_positions() -> None:
    x, mask = tokens(), random_mask(3, 30)
    expected = torch.stack([x[it, mask[it]].mean(0) for it in range(3)])
    out = GlobalAveragePool1d().pool(x, mask)
    torch.testing.assert_close(out.embedding, expected)
    torch.testing.assert_close(out.weights, mask / mask.sum(-1, keepdim=True))


def test_average_pooling_of_float64_is_exact() -> None:
    x, mask = tokens(dtype=torch.float64), random_mask(3, 30)
    expected = torch.stack([x[it, mask[it]].mean(0) for it in range(3)])
    torch.testing.assert_close(GlobalAveragePool1d()(x, mask), expected, rtol=0, atol=1e-15)
    assert GlobalAveragePool1d().pool(x).weights.dtype == torch.float64


def test_autocast_does_not_change_the_mean_of_valid_positions() -> None:
    x, mask = tokens(), random_mask(3, 30)
    expected = GlobalAveragePool1d()(x, mask)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(GlobalAveragePool1d()(x, mask), expected)


def test_the_mean_of_valid_positions_does_not_overflow() -> None:
    x, mask = torch.full((1, 30, 2), 6e4, dtype=torch.float16), random_mask(1, 30)
    assert torch.equal(GlobalAveragePool1d()(x, mask), x[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("masked", [False, True])
def test_mu_one_is_average_pooling(dtype: torch.dtype, masked: bool) -> None:
    x, mask = maps(dtype=dtype), random_mask(3, 5, 6) if masked else None
    got = gsp2d(mu=1.0, dtype=dtype).pool(x, mask)
    expected = GlobalAveragePool2d().pool(x, mask)
    assert torch.equal(got.weights, expected.weights)
    torch.testing.assert_close(got.embedding, expected.embedding)


def test_small_eps_is_nearly_average_pooling() -> None:
    torch.testing.assert_close(
        gsp1d(eps=1e-5)(tokens()), GlobalAveragePool1d()(tokens()), rtol=0, atol=1e-5
    )


def test_the_reversed_layer_completes_the_average() -> None:
    front, back = gsp2d(mu=0.3), gsp2d(mu=0.3, background=True)
    whole = 0.3 * front(maps()) + 0.7 * back(maps())
    torch.testing.assert_close(whole, GlobalAveragePool2d()(maps()))


@pytest.mark.parametrize("solver", ["exact", "iterative", "hard"])
def test_every_solver_works_in_the_layer(solver: str) -> None:
    x = maps().requires_grad_()
    layer = gsp2d(solver=solver)
    layer(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (layer.prototypes.grad is None) == (solver == "hard")
