"""μ and ε as parameters."""

from __future__ import annotations

import pytest
import torch

from pooling.layers import gsp2d, maps
from sumpool.transport import sum_pool


@pytest.mark.parametrize("mu", [0.01, 0.3, 0.999])
@pytest.mark.parametrize("eps", [1e-2, 5.0, 200.0])
def test_learned_settings_start_at_the_given_values(mu: float, eps: float) -> None:
    layer = gsp2d(mu=mu, eps=eps, learn_mu=True, learn_eps=True)
    torch.testing.assert_close(layer.mu.detach(), torch.tensor(mu))
    torch.testing.assert_close(layer.eps.detach(), torch.tensor(eps))
    fixed = gsp2d(mu=mu, eps=eps)
    assert (fixed.mu, fixed.eps) == (mu, eps)
    torch.testing.assert_close(layer(maps()), fixed(maps()), rtol=1e-4, atol=1e-5)


def test_learned_settings_are_parameters_and_fixed_ones_are_not() -> None:
    def names(**options: bool) -> set[str]:
        return {name for name, _ in gsp2d(**options).named_parameters()}

    assert names() == {"prototypes"}
    assert names(learn_mu=True) == {"prototypes", "mu_logit"}
    assert names(learn_eps=True) == {"prototypes", "log_eps"}


@pytest.mark.parametrize("background", [False, True])
def test_gradients_are_those_of_the_function(background: bool) -> None:
    layer = gsp2d(
        mu=0.3, eps=5.0, learn_mu=True, learn_eps=True, background=background, dtype=torch.float64
    )
    x = maps(dtype=torch.float64)
    out = layer.pool(x)
    (out.embedding.square().sum() + out.attributes[:, 0].sum()).backward()

    mu = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    eps = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    prototypes = layer.prototypes.detach().requires_grad_()
    expected = sum_pool(x.flatten(2).mT, prototypes, mu, eps, background=background)
    (expected.embedding.square().sum() + expected.attributes[:, 0].sum()).backward()

    torch.testing.assert_close(layer.prototypes.grad, prototypes.grad)
    # Chain rule: dμ/dlogit = μ(1 − μ), dε/dlog ε = ε.
    torch.testing.assert_close(layer.mu_logit.grad, mu.grad * 0.3 * 0.7)
    torch.testing.assert_close(layer.log_eps.grad, eps.grad * 5.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_learned_settings_stay_in_range(sign: float) -> None:
    layer = gsp2d(learn_mu=True, learn_eps=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        (sign * 10 * (layer.mu + layer.eps)).backward()
        torch.nn.utils.clip_grad_value_(layer.parameters(), 1.0)
        optimizer.step()
        assert 0 < float(layer.mu.detach()) < 1
        assert 0 < float(layer.eps.detach()) < float("inf")
        assert layer(maps()).isfinite().all()


def test_learned_settings_follow_the_loss() -> None:
    # The nearest features differ most from the mean; pushed towards the mean, μ must rise.
    torch.manual_seed(0)
    layer = gsp2d(mu=0.2, eps=5.0, learn_mu=True)
    optimizer = torch.optim.Adam([layer.mu_logit], lr=0.1)
    x = maps()
    before = float(layer.mu.detach())
    for _ in range(10):
        optimizer.zero_grad()
        (layer(x) - x.mean((2, 3))).square().sum().backward()
        optimizer.step()
    assert float(layer.mu.detach()) > before


def test_learned_settings_are_saved() -> None:
    layer = gsp2d(mu=0.2, eps=3.0, learn_mu=True, learn_eps=True)
    loaded = gsp2d(mu=0.7, eps=9.0, learn_mu=True, learn_eps=True, seed=5)
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(maps()), layer(maps()))
