"""Costs, shares and mixtures of generalized sum pooling beyond the papers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import gsp1d, gsp2d, maps, tokens
from sumpool.transport import cosine_costs, partial_transport, relative_norms, spread_of
from transport.generators import source

LEVERS: dict[str, dict[str, Any]] = {
    "cosine": {"cost": "cosine"},
    "norm": {"cost": "norm"},
    "image": {"share": "image"},
    "mix": {"mix": 0.4},
    "learned mix": {"learn_mix": True},
    "all": {"cost": "norm", "share": "image", "learn_mix": True, "learn_eps": True},
}
levers = pytest.mark.parametrize("options", LEVERS.values(), ids=LEVERS)


def moved(layer: Any) -> Any:
    """``layer`` with parameters off their start values, so that each of them matters."""
    with torch.no_grad():
        for parameter in layer.parameters():
            noise = torch.randn(parameter.shape, generator=source(7), dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
    return layer


@levers
def test_weights_sum_to_one_and_give_the_embedding(options: dict[str, Any]) -> None:
    layer, x = moved(gsp1d(**options)), tokens()
    out = layer.pool(x)
    torch.testing.assert_close(out.weights.sum(-1), torch.ones(len(x)))
    assert bool((out.weights >= 0).all())
    torch.testing.assert_close(out.embedding, (out.weights.unsqueeze(1) @ x).squeeze(1))
    torch.testing.assert_close(layer(x), out.embedding)
    torch.testing.assert_close(out.attributes.sum(-1), torch.ones(len(x)))
    torch.testing.assert_close(layer.plan(x).sum(-1), out.attributes)


@levers
def test_invalid_positions_do_not_matter(options: dict[str, Any]) -> None:
    layer, x = moved(gsp1d(**options)), tokens()
    mask = torch.rand(x.shape[:2], generator=source(1)) > 0.4
    out = layer.pool(torch.where(mask.unsqueeze(-1), x, torch.nan), mask)
    assert bool((out.weights[~mask] == 0).all())
    for place in range(len(x)):
        alone = layer.pool(x[place, mask[place]].unsqueeze(0))
        torch.testing.assert_close(out.embedding[place], alone.embedding[0])
        torch.testing.assert_close(out.attributes[place], alone.attributes[0])


@levers
def test_derivatives_are_those_of_finite_differences(options: dict[str, Any]) -> None:
    layer = moved(gsp1d(**options, dtype=torch.float64))
    names = [name for name, _ in layer.named_parameters()]
    values = [it.detach().clone().requires_grad_() for it in layer.parameters()]

    def pooled(x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state = dict(zip(names, given, strict=True))
        out = torch.func.functional_call(
            _Details(layer), {f"layer.{n}": v for n, v in state.items()}, x
        )
        return out

    x = tokens(2, 6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(pooled, (x, *values), fast_mode=True)


class _Details(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(self.layer.pool(x))


@pytest.mark.parametrize("cost", ["cosine", "norm"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_weights_do_not_depend_on_the_scale_of_features(cost: str, factor: float) -> None:
    layer, x = gsp2d(cost=cost), maps()
    torch.testing.assert_close(layer.pool(factor * x).weights, layer.pool(x).weights)


def test_cosine_cost_does_not_depend_on_the_length_of_single_features() -> None:
    layer, x = gsp1d(cost="cosine"), tokens()
    lengths = torch.rand(x.shape[:2], generator=source(2)).add(0.1).unsqueeze(-1)
    torch.testing.assert_close(layer.pool(lengths * x).weights, layer.pool(x).weights)


def test_cost_norm_prefers_long_features_and_without_its_weight_is_cosine() -> None:
    x = tokens()
    layer, plain = gsp1d(cost="norm"), gsp1d(cost="cosine")
    assert layer.norm_weight.item() == 0.5
    norms, ours = relative_norms(x), layer.pool(x).weights
    assert bool(((ours * norms).sum(-1) > (plain.pool(x).weights * norms).sum(-1)).all())
    with torch.no_grad():
        layer.norm_weight.zero_()
    torch.testing.assert_close(layer.pool(x).weights, plain.pool(x).weights)


def test_a_feature_of_length_zero_has_no_direction_and_no_gradient() -> None:
    features = torch.zeros(1, 3, 4).index_fill_(1, torch.tensor(1), 1.0).requires_grad_()
    cost = cosine_costs(features, torch.eye(2, 4))
    assert cost[0, 0].tolist() == [1, 1]
    cost.sum().backward()
    assert bool(features.grad.isfinite().all())
    assert not bool(features.grad[0, 0].any())


def test_share_per_image_starts_at_mu() -> None:
    x = maps()
    layer, fixed = gsp2d(share="image", mu=0.2), gsp2d(mu=0.2)
    torch.testing.assert_close(layer.mu, torch.tensor(0.2))
    torch.testing.assert_close(layer.pool(x).weights, fixed.pool(x).weights)
    assert not bool(layer.share_map.weight.any())


def test_share_per_image_is_that_of_each_image_alone() -> None:
    layer, x = moved(gsp1d(share="image")), tokens()
    shares = layer.shares(x, None)
    assert shares.shape == (len(x),)
    assert len(set(shares.tolist())) == len(x)
    for place, share in enumerate(shares.tolist()):
        alone = gsp1d(mu=share)
        alone.prototypes = layer.prototypes
        expected = alone.pool(x[place].unsqueeze(0)).weights[0]
        torch.testing.assert_close(layer.pool(x).weights[place], expected)


def test_derivative_by_the_share_of_each_image_is_that_of_finite_differences() -> None:
    cost = torch.rand(3, 7, 2, generator=source(3), dtype=torch.float64)
    shares = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = False

    def weights(mu: Tensor) -> tuple[Tensor, Tensor]:
        result = partial_transport(cost, mu, 5.0, mask=mask)
        return result.weights, result.attributes

    assert torch.autograd.gradcheck(weights, shares)
    assert torch.autograd.gradgradcheck(weights, shares)


def test_mix_zero_is_average_pooling_and_one_is_gsp() -> None:
    x = maps()
    none, all_of_it = gsp2d(mix=0.0).pool(x), gsp2d(mix=1.0).pool(x)
    torch.testing.assert_close(none.embedding, x.mean((2, 3)))
    assert bool((none.weights == 1 / 30).all())
    torch.testing.assert_close(all_of_it.embedding, gsp2d().pool(x).embedding)


def test_mix_leaves_every_position_a_share() -> None:
    layer, x = gsp2d(mix=0.25, mu=0.05, eps=1e4), maps().requires_grad_()
    weights = layer.pool(x).weights
    assert bool((weights > 0.999 * 0.75 / 30).all())
    layer(x).sum().backward()
    assert bool((x.grad.abs().sum(1) > 0).all())


def test_learned_mix_starts_at_the_given_value_or_one_half() -> None:
    torch.testing.assert_close(gsp2d(learn_mix=True).mix, torch.tensor(0.5))
    torch.testing.assert_close(gsp2d(learn_mix=True, mix=0.9).mix, torch.tensor(0.9))


@levers
def test_spread_is_reached_by_the_weights_of_the_transport(options: dict[str, Any]) -> None:
    layer, x = gsp1d(**options, spread=0.5, mu=0.2, init="k-center").train(), tokens()
    layer(x)
    torch.testing.assert_close(
        spread_of(layer.plan(x).sum(1)).mean(), torch.tensor(0.5), rtol=2e-3, atol=0
    )


@levers
def test_while_averaging_it_is_average_pooling(options: dict[str, Any]) -> None:
    layer, x = gsp2d(**options), maps()
    layer.averaging = True
    torch.testing.assert_close(layer(x), x.mean((2, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": "dot"}, r"cost must be one of \('ball', 'cosine', 'norm'\), got 'dot'"),
        ({"share": "all"}, r"share must be one of \('fixed', 'image'\), got 'all'"),
        ({"share": "image", "mu": 1.0}, "with share='image'.* mu must be below 1 .*, got 1.0"),
        ({"share": "image", "learn_mu": True}, "with share='image'.* learn_mu False, got .* True"),
        ({"mix": 1.5}, r"mix must lie in \[0, 1\].*, got 1.5"),
        ({"mix": 0.0, "learn_mix": True}, r"mix must lie in .*\(0, 1\) where it is learned, got 0"),
    ],
)
def test_errors_name_the_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gsp2d(**options)


def test_fused_kernels_are_refused_for_costs_they_do_not_have() -> None:
    with pytest.raises(ValueError, match="fused=True is not possible: the costs are given"):
        gsp2d(cost="cosine", fused=True)(maps())
