"""GSP in parts: residuals to each prototype, normalized one by one and projected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, PROTOTYPES, maps, tokens
from sumpool.pooling import SumPartsPool1d, SumPartsPool2d
from sumpool.transport import spread_of
from transport.generators import random_mask, source

SIZE, DIM = 6, 3


def pool1d(**options: Any) -> SumPartsPool1d:
    options = {"init": "random", "dtype": torch.float64, "dim": DIM, **options}
    torch.manual_seed(0)
    return SumPartsPool1d(CHANNELS, SIZE, PROTOTYPES, **options)


def looped(layer: SumPartsPool1d, x: Tensor) -> Tensor:
    """The embedding of one sequence (n, C): prototypes and tokens one by one."""
    local = torch.stack([layer.map.weight @ token for token in x])
    plan = layer.gsp.plan(local.unsqueeze(0))[0]  # (m, n)
    parts = []
    for shares, prototype in zip(plan, layer.prototypes, strict=True):
        part = sum(share * (f - prototype) for share, f in zip(shares, local, strict=True))
        parts.append(part / part.norm())
    if layer.with_sum:
        whole = sum(p * f for p, f in zip(plan.sum(0), x, strict=True))
        parts.append(whole / whole.norm())
    return layer.project.weight @ torch.cat(parts)


@pytest.mark.parametrize("with_sum", [False, True])
@pytest.mark.parametrize("options", [{}, {"cost": "cosine"}, {"mu": 1.0}])
def test_the_embedding_equals_the_definition(with_sum: bool, options: dict[str, Any]) -> None:
    layer, x = pool1d(with_sum=with_sum, **options), tokens(2, 9, dtype=torch.float64)
    expected = torch.stack([looped(layer, it) for it in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_weights_attributes_and_plan_are_those_of_gsp_on_the_mapped_features() -> None:
    layer, x = pool1d(), tokens(dtype=torch.float64)
    out, gsp = layer.pool(x), layer.gsp.pool(layer.map(x))
    torch.testing.assert_close(out.weights, gsp.weights)
    torch.testing.assert_close(out.attributes, gsp.attributes)
    torch.testing.assert_close(layer.plan(x).sum(-1), out.attributes)


def test_invalid_positions_do_not_matter() -> None:
    layer, x = pool1d(with_sum=True, mix=0.5), tokens(dtype=torch.float64)
    mask = random_mask(3, 30)
    out = layer.pool(torch.where(mask.unsqueeze(-1), x, torch.nan), mask)
    for place in range(len(x)):
        alone = layer(x[place, mask[place]].unsqueeze(0))
        torch.testing.assert_close(out.embedding[place], alone[0])


def test_mix_zero_takes_the_residuals_of_all_positions_alike() -> None:
    x = tokens(dtype=torch.float64)
    torch.testing.assert_close(pool1d(mix=0.0)(x), pool1d(mu=1.0)(x))


def test_derivatives_are_those_of_finite_differences() -> None:
    layer = pool1d(with_sum=True, cost="norm", share="image", learn_mix=True, learn_eps=True)
    x = tokens(2, 6, dtype=torch.float64).requires_grad_()
    names = [name for name, _ in layer.named_parameters()]
    values = [it.detach().clone().requires_grad_() for it in layer.parameters()]

    def pooled(x: Tensor, *given: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, given, strict=True)), x)

    assert torch.autograd.gradcheck(pooled, (x, *values), fast_mode=True)


def test_prototypes_and_sharpness_are_set_in_the_mapped_space() -> None:
    layer = SumPartsPool2d(CHANNELS, SIZE, PROTOTYPES, dim=DIM, spread=0.5, mu=0.2).train()
    x = maps(8)
    means = layer.averages(x)
    torch.testing.assert_close(means, layer.map(x.mean((2, 3))))
    layer.initialize_prototypes_among(means)
    layer.sharpen(x)
    assert bool(layer.prototypes_ready)
    spread = spread_of(layer.plan(x).sum(1).flatten(1)).mean()
    torch.testing.assert_close(spread, torch.tensor(0.5), rtol=2e-3, atol=0)
    layer(x).sum().backward()
    assert all(bool(it.grad.isfinite().all()) for it in layer.parameters())


def test_average_pooling_is_refused() -> None:
    layer = pool1d()
    layer.averaging = True
    with pytest.raises(ValueError, match="averaging must be False for gsp-parts"):
        layer(tokens(dtype=torch.float64))


def test_reset_draws_both_maps_again() -> None:
    layer = pool1d()
    before = layer.project.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.project.weight, before)
    assert layer(torch.randn(2, 5, CHANNELS, generator=source(0)).double()).shape == (2, SIZE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"fused": True}, "fused must be None or False"),
    ],
)
def test_errors_name_the_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pool1d(**options)
