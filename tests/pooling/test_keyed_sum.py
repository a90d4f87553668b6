"""GSP on learned keys: attention for a small share, the power mean for the whole image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sumpool.pooling import GeneralizedMeanPool2d, KeyedSumPool2d, SimPool2d
from sumpool.pooling.generalized_mean import generalized_mean

X = torch.rand(3, 8, 5, 5, generator=torch.Generator().manual_seed(0)).double()


#: As SimPool has them.
NORMALIZED: dict[str, Any] = {"values": "normalized", "start": "random", "learn_gamma": False}


def layers(mu: float, gamma: float = 2.0) -> tuple[KeyedSumPool2d, SimPool2d]:
    keyed = KeyedSumPool2d(8, mu=mu, gamma=gamma, dtype=torch.float64, **NORMALIZED)
    simple = SimPool2d(8, gamma=gamma, dtype=torch.float64)
    simple.load_state_dict({k: v for k, v in keyed.state_dict().items() if k != "prototypes"})
    return keyed, simple


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_a_vanishing_share_is_the_attention_of_simpool(gamma: float) -> None:
    keyed, simple = layers(mu=1e-9, gamma=gamma)
    found, expected = keyed.pool(X), simple.pool(X)
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-6, atol=1e-9)
    # At γ = 1 SimPool shifts its values by the least of them; the weighted sum does not.
    shift = 0.0 if gamma > 1 else (expected.embedding - found.embedding).mean(1, keepdim=True)
    torch.testing.assert_close(found.embedding + shift, expected.embedding, rtol=1e-5, atol=1e-7)


def test_the_whole_image_is_pooled_by_a_power_mean() -> None:
    keyed, _ = layers(mu=1.0)
    values = keyed.norm(X.flatten(2).mT)
    values = values - values.amin((1, 2), keepdim=True) + 1e-6
    torch.testing.assert_close(keyed(X), generalized_mean(values, 2.0))


@pytest.mark.parametrize("mu", [0.1, 0.5])
def test_no_position_exceeds_its_share(mu: float) -> None:
    layer = KeyedSumPool2d(8, 3, mu, eps=50.0, start="random", dtype=torch.float64)
    out = layer.pool(X)
    assert out.weights.max() <= 1 / (25 * mu) + 1e-12
    torch.testing.assert_close(out.weights.sum((1, 2)), torch.ones(3).double())
    torch.testing.assert_close(out.attributes.sum(1), torch.ones(3).double())


@pytest.mark.parametrize(
    "options",
    [{"start": "random"}, {"hidden": 5}, {**NORMALIZED, "gamma": 2.0}],
)
def test_derivatives_are_exact(options: dict[str, Any]) -> None:
    layer = KeyedSumPool2d(4, prototypes=2, mu=0.4, eps=3.0, dtype=torch.float64, **options)
    x = X[:2, :4, :2, :3].clone().requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def pooled(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, given, (x,))

    assert torch.autograd.gradcheck(pooled, (x, *values))


def test_from_the_identity_what_is_like_the_mean_weighs_most() -> None:
    layer = KeyedSumPool2d(8, mu=0.1, start="identity", dtype=torch.float64)
    features = X.flatten(2).mT
    likeness = (layer.norm(features) * features.mean(1, keepdim=True)).sum(-1)
    weights = layer.pool(X).weights.flatten(1)
    assert torch.equal(weights.argsort(1), likeness.argsort(1))


@pytest.mark.parametrize("name", ["start", "values"])
def test_an_unknown_choice_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be one of .*, got 'ones'"):
        KeyedSumPool2d(8, **{name: "ones"})  # type: ignore[arg-type]


@pytest.mark.parametrize("learn_gamma", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 3.0])
@pytest.mark.parametrize("hidden", [None, 16])
def test_it_starts_as_the_generalized_mean(
    hidden: int | None, gamma: float, learn_gamma: bool
) -> None:
    keyed = KeyedSumPool2d(
        8, gamma=gamma, learn_gamma=learn_gamma, hidden=hidden, dtype=torch.float64
    )
    mean = GeneralizedMeanPool2d(p=gamma, learn_p=learn_gamma).double()
    gradients = []
    for layer in (keyed, mean):
        x = X.clone().requires_grad_()
        layer(x).pow(2).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(keyed(X), mean(X))
    torch.testing.assert_close(*gradients)
    if learn_gamma:
        assert isinstance(keyed.gamma, torch.Tensor)
        torch.testing.assert_close(keyed.gamma.grad, mean.p.grad)
    # From here it learns to select.
    learned = keyed.prototypes if hidden else keyed.key.weight
    assert learned.grad is not None
    assert learned.grad.abs().max() > 1e-6


def test_a_vanishing_share_is_the_softmax_of_the_scores() -> None:
    layer = KeyedSumPool2d(8, mu=1e-9, hidden=16, dtype=torch.float64)
    torch.nn.init.normal_(layer.prototypes)
    scores = layer.key(X.flatten(2).mT).relu() @ layer.prototypes[0]
    torch.testing.assert_close(
        layer.pool(X).weights.flatten(1), scores.softmax(1), rtol=1e-6, atol=1e-9
    )


def test_a_score_has_no_queries_to_start() -> None:
    layer = KeyedSumPool2d(8, hidden=16, learn_gamma=False)
    assert {name for name, _ in layer.named_parameters()} == {
        "prototypes",
        "key.weight",
        "key.bias",
    }
    with pytest.raises(ValueError, match="start must be 'equal' with hidden, got 'random'"):
        KeyedSumPool2d(8, hidden=16, start="random")


@pytest.mark.parametrize("gamma", [1.0, 2.5])
def test_the_features_of_the_whole_image_are_pooled_as_they_are(gamma: float) -> None:
    keyed = KeyedSumPool2d(8, mu=1.0, gamma=gamma, learn_gamma=False, dtype=torch.float64)
    torch.testing.assert_close(keyed(X), generalized_mean(X.flatten(2).mT, gamma))


def test_a_learned_exponent_is_reset() -> None:
    layer = KeyedSumPool2d(4)
    assert isinstance(layer.gamma, torch.Tensor)
    with torch.no_grad():
        layer.gamma.fill_(7)
    layer.reset_parameters()
    assert layer.gamma.item() == 3
