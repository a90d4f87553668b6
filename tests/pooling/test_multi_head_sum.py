"""GSP in heads: what it is for one head, at μ = 1, and part by part."""

from __future__ import annotations

import pytest
import torch

from sumpool.pooling import GeneralizedSumPool2d, MultiHeadSumPool2d
from sumpool.transport import spread_of

X = torch.randn(3, 8, 5, 5, generator=torch.Generator().manual_seed(0))


def test_one_head_is_generalized_sum_pooling() -> None:
    one, plain = MultiHeadSumPool2d(8, heads=1, prototypes=4), GeneralizedSumPool2d(8, 4)
    for found, expected in zip(one.eval().pool(X), plain.eval().pool(X), strict=True):
        torch.testing.assert_close(found, expected)


def test_all_of_every_image_is_average_pooling() -> None:
    layer = MultiHeadSumPool2d(8, heads=4, prototypes=4, mu=1.0).eval()
    torch.testing.assert_close(layer(X), X.mean((2, 3)))


def test_each_part_is_pooled_as_by_a_layer_of_its_own() -> None:
    layer = MultiHeadSumPool2d(8, heads=2, prototypes=4, eps=20.0).eval()
    plans = []
    for part in range(2):
        own = slice(4 * part, 4 * part + 4)
        alone = GeneralizedSumPool2d(4, 4, eps=20.0).eval()
        alone.prototypes.data = layer.prototypes.data[:, own]
        torch.testing.assert_close(layer(X)[:, own], alone(X[:, own]))
        plans.append(alone.plan(X[:, own]))
    torch.testing.assert_close(layer.plan(X), torch.stack(plans).mean(0))


def test_one_sharpness_gives_the_mean_spread_over_heads() -> None:
    layer = MultiHeadSumPool2d(8, heads=2, prototypes=4, mu=0.1, spread=0.4)
    layer.initialize_prototypes(X)
    shares = []
    for part in range(2):
        own = slice(4 * part, 4 * part + 4)
        alone = GeneralizedSumPool2d(4, 4, mu=0.1, eps=float(layer.eps), init="random").eval()
        alone.prototypes.data = layer.prototypes.data[:, own]
        shares.append(spread_of(alone.pool(X[:, own]).weights.flatten(1)))
    assert float(torch.stack(shares).detach().mean()) == pytest.approx(0.4, rel=2e-3)


@pytest.mark.parametrize("option", [{"cost": "cosine"}, {"mix": 0.5}, {"share": "image"}])
def test_what_changes_the_weights_of_a_whole_feature_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))} must be"):
        MultiHeadSumPool2d(8, heads=2, prototypes=4, **option)


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="multiple of heads=3"):
        MultiHeadSumPool2d(8, heads=3, prototypes=4)
