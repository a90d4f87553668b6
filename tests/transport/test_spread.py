"""The sharpness that gives weights a wanted spread."""

from __future__ import annotations

import pytest
import torch

from sumpool.transport import eps_for_spread, partial_transport, spread_of
from transport.generators import random_cost, random_mask


@pytest.mark.parametrize("mu", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("spread", [0.4, 0.6, 0.9])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_the_spread_is_as_asked(mu: float, spread: float, scale: float) -> None:
    cost = scale * random_cost(32, 49, 16)
    eps = eps_for_spread(cost, mu, spread)
    found = spread_of(partial_transport(cost, mu, eps).weights).mean()
    assert float(found) == pytest.approx(spread, rel=0.01)


def test_a_mask_counts_valid_positions_alone() -> None:
    cost, mask = random_cost(32, 49, 16), random_mask(32, 49)
    eps = eps_for_spread(cost, 0.1, 0.4, mask)
    weights = partial_transport(cost, 0.1, eps, mask=mask).weights
    alone = [spread_of(own[kept]) for own, kept in zip(weights, mask, strict=True)]
    torch.testing.assert_close(spread_of(weights, mask), torch.stack(alone))
    assert float(torch.stack(alone).mean()) == pytest.approx(0.4, rel=0.01)


def test_a_smaller_spread_is_sharper() -> None:
    cost = random_cost(16, 49, 8)
    found = [eps_for_spread(cost, 0.1, spread) for spread in (0.9, 0.7, 0.5, 0.3, 0.2)]
    assert found == sorted(found)


def test_sharpness_follows_the_scale_of_the_costs() -> None:
    cost = random_cost(16, 49, 8)
    once, twice = (eps_for_spread(factor * cost, 0.1, 0.4) for factor in (1.0, 2.0))
    assert once == pytest.approx(2 * twice, rel=0.01)


@pytest.mark.parametrize("spread", [0.0, 1.0, -0.5, 2.0])
def test_a_spread_outside_of_0_to_1_is_refused(spread: float) -> None:
    with pytest.raises(ValueError, match=r"spread must lie in \(0, 1\), got"):
        eps_for_spread(random_cost(2, 9, 3), 0.3, spread)


@pytest.mark.parametrize(("mu", "spread"), [(0.5, 0.4), (1.0, 0.9)])
def test_a_spread_that_no_sharpness_gives_is_refused(mu: float, spread: float) -> None:
    with pytest.raises(ValueError, match=r"spread must lie above .* which the sharpest weights"):
        eps_for_spread(random_cost(8, 40, 3), mu, spread)
