"""NetVLAD against its definition, and its start from the first batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, maps, tokens
from sumpool.pooling.rivals.netvlad import NetVladPool1d, NetVladPool2d, netvlad_vector
from transport.generators import random_mask, source


def vlad1d(**options: Any) -> NetVladPool1d:
    """A layer whose assignments have been learned apart from its centers."""
    options = {"init": "random", "dtype": torch.float64, **options}
    layer = NetVladPool1d(CHANNELS, 12, 4, **options)
    with torch.no_grad():
        layer.assign_weight.copy_(torch.randn(4, 3, generator=source(1)))
        layer.assign_bias.copy_(torch.randn(4, generator=source(2)))
    return layer


def looped(layer: NetVladPool1d, x: Tensor) -> Tensor:
    """The embedding of one sequence (n, C), by the definition."""
    centers, weight, bias = (it.detach() for it in layer.prototype_parameters())
    sums = [torch.zeros(3, dtype=torch.float64) for _ in range(4)]
    for token in x:
        f = layer.map.weight.detach() @ token
        f = f / f.norm()
        scores = [math.exp(float(weight[k] @ f + bias[k])) for k in range(4)]
        for k in range(4):
            sums[k] += scores[k] / sum(scores) * (f - centers[k])
    v = torch.cat([it / it.norm() for it in sums])
    return v / v.norm()


def test_the_embedding_equals_the_definition() -> None:
    layer, x = vlad1d(), tokens(dtype=torch.float64)
    expected = torch.stack([looped(layer, it) for it in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("init", ["random", "k-means"])
def test_assignments_start_as_those_by_squared_distance(init: str) -> None:
    layer = NetVladPool1d(CHANNELS, 12, 4, alpha=7.0, init=init, dtype=torch.float64)
    x = tokens(dtype=torch.float64)
    layer(x)
    local = layer.map(x)
    local = local / local.norm(dim=-1, keepdim=True)
    square = (local.unsqueeze(2) - layer.prototypes).square().sum(-1)  # (B, n, K)
    torch.testing.assert_close(30 * layer.plan(x).permute(0, 2, 1), (-7 * square).softmax(-1))


def test_the_two_largest_assignments_start_at_a_ratio_of_a_hundred() -> None:
    layer, x = NetVladPool1d(CHANNELS, 12, 4, dtype=torch.float64), tokens(dtype=torch.float64)
    layer(x)
    first, second = layer.plan(x).topk(2, dim=1).values.unbind(1)
    torch.testing.assert_close((first / second).log().mean().exp().item(), 100.0)


def test_centers_are_means_of_the_features_nearest_to_them() -> None:
    x = maps(batch=2)
    layer = NetVladPool2d(CHANNELS, 12, 4)
    layer.lloyd_steps = 50  # until nothing moves
    layer(x)
    local = layer.local_features(x.flatten(2).mT).flatten(0, 1).detach()
    nearest = torch.cdist(local, layer.prototypes).argmin(-1)
    means = torch.stack([local[nearest == k].mean(0) for k in range(4)])
    torch.testing.assert_close(layer.prototypes.detach(), means)


def test_the_first_training_pass_sets_the_clusters_once_and_in_place() -> None:
    layer = NetVladPool2d(CHANNELS, 12, 4)
    places = [it.data_ptr() for it in layer.parameters()]
    before = [it.detach().clone() for it in layer.prototype_parameters()]
    layer.eval()(maps())
    assert not layer.prototypes_ready
    layer.train()(maps())
    assert layer.prototypes_ready
    after = [it.detach().clone() for it in layer.prototype_parameters()]
    assert not any(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    layer(maps(seed=1))
    assert all(map(torch.equal, layer.prototype_parameters(), after))
    assert places == [it.data_ptr() for it in layer.parameters()]
    loaded = NetVladPool2d(CHANNELS, 12, 4, seed=3)
    loaded.load_state_dict(layer.state_dict())
    torch.testing.assert_close(loaded(maps(seed=2)), layer(maps(seed=2)))


def test_features_that_are_all_alike_make_a_finite_start() -> None:
    layer = NetVladPool2d(CHANNELS, 12, 4)
    layer(torch.ones(2, CHANNELS, 3, 3)).sum().backward()
    assert all(it.isfinite().all() and it.grad.isfinite().all() for it in layer.parameters())


def test_one_cluster_is_the_normalized_sum_of_residuals() -> None:
    layer, x = NetVladPool1d(CHANNELS, 3, 1, dtype=torch.float64), tokens(dtype=torch.float64)
    layer.initialize_prototypes(tokens(seed=1, dtype=torch.float64))
    local = layer.map(x)
    sums = (local / local.norm(dim=-1, keepdim=True) - layer.prototypes).sum(1)
    torch.testing.assert_close(layer(x), sums / sums.norm(dim=-1, keepdim=True))


def test_embeddings_and_their_parts_have_equal_norms() -> None:
    out = vlad1d()(tokens(dtype=torch.float64))
    norms = out.unflatten(-1, (4, 3)).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full((3, 4), 0.5, dtype=torch.float64))


def test_a_cluster_without_features_gives_zeros() -> None:
    assignments = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    out = netvlad_vector(torch.eye(2), assignments, torch.ones(2, 2))
    torch.testing.assert_close(out, torch.tensor([-(0.5**0.5), -(0.5**0.5), 0.0, 0.0]))


def test_masked_positions_are_not_clustered() -> None:
    mask = random_mask(3, 30)
    x = tokens(dtype=torch.float64).masked_fill(~mask.unsqueeze(-1), torch.nan)
    layer = NetVladPool1d(CHANNELS, 12, 4, dtype=torch.float64)
    layer.initialize_prototypes(x, mask)
    assert all(it.isfinite().all() for it in layer.parameters())


def test_autocast_normalizes_in_float32() -> None:
    layer = NetVladPool2d(CHANNELS, 12, 4)
    layer(maps())
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(maps())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, layer(maps()), rtol=0.05, atol=0.05)
    torch.testing.assert_close(got.norm(dim=-1), torch.ones(3))


def test_too_few_features_to_start_from_are_refused() -> None:
    with pytest.raises(ValueError, match=r"initializing 8 prototypes needs .*, got 4"):
        NetVladPool2d(CHANNELS)(maps(1, 2, 2))


@pytest.mark.parametrize("kind", [None, torch.int32, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_map_of_another_kind_is_applied_as_it_is(
    kind: torch.dtype | None, dtype: torch.dtype
) -> None:
    """Such as a quantized one, or one with an adapter."""

    class Packed(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x @ weight.to(x.dtype).T

    layer = NetVladPool2d(channels=8, embedding_size=32)
    x = torch.rand(4, 8, 6, 6)
    layer.initialize_prototypes(x)
    expected, weight = layer.eval()(x), layer.map.weight.detach()
    layer.map = Packed(8, 4, bias=False)
    stored = None if kind is None else torch.nn.Parameter(torch.ones(4, 8, dtype=kind), False)
    layer.map.weight = stored  # type: ignore[assignment]
    torch.testing.assert_close(layer(x.to(dtype)).float(), expected, atol=1e-3, rtol=0)


def test_a_weight_is_computed_once() -> None:
    class Counting(torch.nn.Module):
        calls = 0

        def forward(self, weight: Tensor) -> Tensor:
            self.calls += 1
            return weight

    layer = NetVladPool2d(CHANNELS, embedding_size=32, init="random")
    counting = Counting()
    torch.nn.utils.parametrize.register_parametrization(layer.map, "weight", counting)
    for dtype in (torch.float32, torch.float64):
        counting.calls = 0
        layer(maps(2, 3, 3, dtype=dtype))
        assert counting.calls == 1
