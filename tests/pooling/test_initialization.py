"""Prototypes are set once, in place, from the first training batch."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from pooling.layers import CHANNELS, PROTOTYPES, gsp1d, gsp2d, maps, tokens
from sumpool import GeneralizedSumPool1d, GeneralizedSumPool2d
from sumpool.transport import greedy_k_center, lipschitz_normalize, spread_of
from transport.generators import random_mask


def fresh(**options) -> GeneralizedSumPool2d:
    return gsp2d(init="k-center", **options)


def is_subset(rows: Tensor, of: Tensor) -> bool:
    return bool((rows.unsqueeze(1) == of).all(-1).any(-1).all())


def test_the_first_training_pass_sets_the_prototypes_in_place() -> None:
    layer = fresh()
    parameter, place, before = (
        layer.prototypes,
        layer.prototypes.data_ptr(),
        layer.prototypes.clone(),
    )
    layer(maps())
    assert layer.prototypes is parameter
    assert layer.prototypes.data_ptr() == place
    assert not torch.equal(layer.prototypes, before)
    assert layer.prototypes.requires_grad


def test_later_passes_leave_the_prototypes_alone() -> None:
    layer = fresh()
    layer(maps())
    after = layer.prototypes.clone()
    layer(maps(seed=1))
    layer.eval()(maps(seed=2))
    layer.train()(maps(seed=3))
    assert torch.equal(layer.prototypes, after)


def test_evaluation_never_sets_the_prototypes() -> None:
    layer = fresh().eval()
    before = layer.prototypes.clone()
    layer(maps())
    layer.pool(maps())
    assert torch.equal(layer.prototypes, before)
    layer.train().pool(maps())
    assert not torch.equal(layer.prototypes, before)


def test_an_optimizer_built_before_keeps_updating_the_prototypes() -> None:
    layer = fresh()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(maps()).square().sum().backward()
    initial = layer.prototypes.detach().clone()
    optimizer.step()
    moved = layer.prototypes.detach() - initial
    torch.testing.assert_close(moved, -0.1 * layer.prototypes.grad)
    assert (moved != 0).any()


def test_prototypes_are_a_subset_of_the_normalized_features() -> None:
    x = 3 * maps()  # norms on both sides of 1
    layer = fresh()
    layer(x)
    local = lipschitz_normalize(x.flatten(2).mT.flatten(0, 1))
    assert is_subset(layer.prototypes.detach(), local)
    assert len(layer.prototypes.detach().unique(dim=0)) == PROTOTYPES


def test_float64_prototypes_are_a_subset_of_the_normalized_features() -> None:
    x = 3 * maps(dtype=torch.float64)
    layer = fresh(dtype=torch.float64)
    layer(x)
    local = lipschitz_normalize(x.flatten(2).mT.flatten(0, 1))
    assert is_subset(layer.prototypes.detach(), local)


def test_prototypes_are_greedy_centers_of_the_features() -> None:
    # Whatever the first pick, which the seed decides, the rest follow from it.
    x = maps()
    layer = fresh()
    layer(x)
    local = lipschitz_normalize(x.flatten(2).mT.flatten(0, 1))
    first = layer.prototypes.detach()[:1]
    rest = greedy_k_center(local, PROTOTYPES - 1, chosen=first)
    torch.testing.assert_close(layer.prototypes.detach()[1:], local[rest])


def test_the_same_seed_gives_the_same_prototypes() -> None:
    layers = [fresh(seed=3), fresh(seed=3)]
    for number, layer in enumerate(layers):
        torch.manual_seed(number)  # the global generator plays no part
        layer(maps())
    assert torch.equal(layers[0].prototypes, layers[1].prototypes)


def test_another_seed_gives_other_prototypes() -> None:
    layers = [fresh(seed=3), fresh(seed=4)]
    assert not torch.equal(layers[0].prototypes, layers[1].prototypes)
    for layer in layers:
        layer(maps())
    assert not torch.equal(layers[0].prototypes, layers[1].prototypes)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    fresh()(maps())
    assert torch.equal(torch.get_rng_state(), before)


def test_random_prototypes_stay_as_drawn() -> None:
    layer = gsp2d(init="random")
    before = layer.prototypes.clone()
    layer(maps())
    assert torch.equal(layer.prototypes, before)
    assert (before.norm(dim=-1) <= 1 + 1e-6).all()


@pytest.mark.parametrize("explicit", [False, True])
def test_masked_positions_are_never_picked(explicit: bool) -> None:
    x, mask = maps(), random_mask(3, 5, 6)
    x = torch.where(mask.unsqueeze(1), x, 100.0)  # far from all others, were they looked at
    layer = fresh()
    if explicit:
        layer.initialize_prototypes(x, mask)
    else:
        layer(x, mask)
    local = lipschitz_normalize(x.permute(0, 2, 3, 1)[mask])
    assert is_subset(layer.prototypes.detach(), local)


def test_prefix_tokens_are_never_picked() -> None:
    layer = gsp1d(init="k-center", num_prefix_tokens=1)
    layer(torch.cat([torch.full((3, 1, CHANNELS), 100.0), tokens()], 1))
    assert is_subset(layer.prototypes.detach(), lipschitz_normalize(tokens().flatten(0, 1)))


def test_explicit_initialization_equals_that_of_the_first_pass() -> None:
    implicit, explicit = fresh(), fresh()
    implicit(maps())
    explicit.initialize_prototypes(maps())
    assert torch.equal(implicit.prototypes, explicit.prototypes)
    explicit(maps(seed=1))
    assert torch.equal(implicit.prototypes, explicit.prototypes)


def test_every_layout_picks_the_same_prototypes() -> None:
    first, last = fresh(), fresh(input_fmt="NHWC")
    first(maps())
    last(maps().permute(0, 2, 3, 1))
    assert torch.equal(first.prototypes, last.prototypes)


def test_a_loaded_layer_does_not_set_its_prototypes_again() -> None:
    trained = fresh()
    trained(maps())
    buffer = io.BytesIO()
    torch.save(trained.state_dict(), buffer)
    buffer.seek(0)
    loaded = fresh(seed=9)
    loaded.load_state_dict(torch.load(buffer))
    loaded.train()(maps(seed=1))
    assert torch.equal(loaded.prototypes, trained.prototypes)


def test_a_layer_loaded_from_an_untrained_one_still_sets_its_prototypes() -> None:
    loaded = fresh()
    loaded(maps())
    loaded.load_state_dict(fresh(seed=5).state_dict())
    before = loaded.prototypes.clone()
    loaded(maps(seed=1))
    assert not torch.equal(loaded.prototypes, before)


def test_readiness_is_loaded_inside_a_larger_model() -> None:
    def model() -> torch.nn.Sequential:
        return torch.nn.Sequential(torch.nn.Conv2d(CHANNELS, CHANNELS, 1), fresh())

    trained, loaded = model(), model()
    trained(maps())
    loaded.load_state_dict(trained.state_dict())
    loaded(maps(seed=1))
    assert torch.equal(loaded[1].prototypes, trained[1].prototypes)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_keep_readiness(copied) -> None:
    ready = fresh()
    ready(maps())
    twin = copied(ready)
    twin(maps(seed=1))
    assert torch.equal(twin.prototypes, ready.prototypes)
    waiting = copied(fresh())
    before = waiting.prototypes.clone()
    waiting(maps())
    assert not torch.equal(waiting.prototypes, before)


def test_resetting_makes_a_layer_new() -> None:
    layer = fresh()
    layer(maps())
    layer.reset_parameters()
    assert torch.equal(layer.prototypes, fresh().prototypes)
    layer(maps(seed=1))
    again = fresh()
    again(maps(seed=1))
    assert torch.equal(layer.prototypes, again.prototypes)


def test_large_batches_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GeneralizedSumPool1d, "max_init_features", 10)
    layer = gsp1d(init="k-center")
    layer(tokens())
    assert is_subset(layer.prototypes.detach(), lipschitz_normalize(tokens().flatten(0, 1)))


def test_frozen_prototypes_are_set_too() -> None:
    layer = fresh()
    layer.prototypes.requires_grad_(False)
    layer(maps())
    assert not torch.equal(layer.prototypes, fresh().prototypes)
    assert not layer.prototypes.requires_grad


def test_a_batch_that_is_not_finite_is_refused_and_sets_nothing() -> None:
    layer = fresh()
    before = layer.prototypes.detach().clone()
    x = maps()
    x[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="needs finite features, but the batch holds NaN"):
        layer(x)
    assert torch.equal(layer.prototypes, before)
    assert not layer.prototypes_ready


@pytest.mark.parametrize("learn_eps", [False, True])
@torch.no_grad()
def test_eps_is_chosen_for_the_spread_when_prototypes_are_set(learn_eps: bool) -> None:
    layer = fresh(mu=0.3, spread=0.7, learn_eps=learn_eps)
    x = maps()
    layer(x)
    found = float(layer.eps)
    assert float(spread_of(layer.pool(x).weights.flatten(1)).mean()) == pytest.approx(0.7, rel=0.01)
    layer(maps(seed=1))
    assert float(layer.eps) == found  # once
    copied = fresh(mu=0.3, spread=0.7, learn_eps=learn_eps)
    copied.load_state_dict(layer.state_dict())
    assert float(copied.eps) == found
    assert torch.equal(copied(x), layer(x))
    again = fresh(mu=0.3, spread=0.7, learn_eps=learn_eps)
    again.initialize_prototypes(x)
    assert float(again.eps) == found


@torch.no_grad()
def test_an_average_of_models_pools_as_they_do() -> None:
    layer = fresh(mu=0.3, spread=0.7)
    average = AveragedModel(layer)
    layer(maps())
    average.update_parameters(layer)
    layer.eval()
    average.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(average(maps(seed=1)), layer(maps(seed=1)))


@pytest.mark.parametrize(
    "options", [{"spread": 1.0}, {"spread": 0.5, "mu": 1.0}, {"spread": 0.5, "init": "random"}]
)
def test_a_spread_that_cannot_be_set_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r"spread must lie in \(0, 1\), with mu below 1"):
        GeneralizedSumPool2d(8, **options)


def test_an_untrained_layer_in_evaluation_mode_warns_once() -> None:
    layer = GeneralizedSumPool2d(8, prototypes=4).eval()
    features = torch.randn(2, 8, 7, 7)
    with pytest.warns(UserWarning, match="prototypes are not set yet"):
        layer(features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(features)  # once
        layer.train()(features)  # sets them
        layer.eval()(features)
        GeneralizedSumPool2d(8, prototypes=4, init="random").eval()(features)
