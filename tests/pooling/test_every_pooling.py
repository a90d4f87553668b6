"""Laws that every pooling of the catalog keeps, whatever it computes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from sumpool.pooling import POOLINGS, GlobalPool, build_pooling, pooling_class, pooling_options
from sumpool.transport import Exact, Iterative, Solver
from transport.generators import random_mask, source

CHANNELS, EMBEDDING = 4, 6
NAMES = list(POOLINGS)
#: Poolings that look at neighbors; all others pool a set of positions.
MAPS_ONLY = {"cbam", "gsop", "t-smk"}
SETS = [name for name in NAMES if name not in MAPS_ONLY]
INSIDE = [name for name in NAMES if pooling_class(name).linear_map == "inside"]
#: Small values of options, for the poolings that have them.
SMALL: dict[str, Any] = {
    "blocks": 1,
    "cluster_dim": 2,
    "clusters": 2,
    "grid": 2,
    "heads": 2,
    "hidden": 3,
    "init": "random",
    "iterations": 3,
    "kernel_size": 3,
    "prototypes": 2,
    "queries": 2,
    "rank": 2,
    "reduced": 2,
    "reduction": 2,
    "rows": 2,
    "width": 4,
}
#: Sums of the parameters that seed 0 draws, weighted by their place.
DRAWN = {
    "gap": 0.49626,
    "gmp": 0.49626,
    "gap+gmp": 0.49626,
    "cbam": -1.32438,
    "crow": 0.49626,
    "delf": -1.16813,
    "gemax": 0.49626,
    "gemean": 3.99251,
    "gsop": -7.46095,
    "otp": -2.22514,
    "solar": 4.22898,
    "t-smk": -0.75823,
    "netvlad": -59.89668,
    "weldon": 0.49626,
    "compact-bilinear": 6.93680,
    "simpool": 3.49148,
    "attention": 2.79895,
    "salad": -2.03526,
    "boq": 30.07868,
    "efficient-probing": -2.05008,
    "gsp": -0.08503,
    "gmp+gsp": -1.43871,
    "gemean+gsp": 1.54024,
    "gsp-heads": -0.08503,
    "gsp-keys": 5.41653,
    "gsp-parts": -2.91387,
}

each = pytest.mark.parametrize("name", NAMES)
each_set = pytest.mark.parametrize("name", SETS)


def layer_of(name: str, *, sequence: bool = False, draw: int = 0, **options: Any) -> GlobalPool:
    """A small layer, its parameters random but not symmetric."""
    accepted = pooling_options(name, sequence=sequence)
    small = {key: value for key, value in SMALL.items() if key in accepted}
    inside = pooling_class(name, sequence=sequence).linear_map == "inside"
    torch.manual_seed(draw)
    return build_pooling(
        name,
        CHANNELS,
        embedding_size=EMBEDDING if inside else None,
        sequence=sequence,
        **{**small, **options},
    )


def maps(batch: int = 2, height: int = 3, width: int = 4, dtype: Any = torch.float32) -> Tensor:
    """Maps (B, C, H, W) of positive values, no two of which are the same or nearly so."""
    shape = batch, CHANNELS, height, width
    count = math.prod(shape)
    return ((torch.randperm(count, generator=source(0)) + 1) / count).to(dtype).reshape(shape)


def tokens(batch: int = 2, length: int = 9, dtype: Any = torch.float32) -> Tensor:
    """Sequences (B, L, C) of such values."""
    return maps(batch, length, 1, dtype).flatten(2).mT.contiguous()


def gradients(layer: GlobalPool, out: Tensor, x: Tensor) -> list[Tensor]:
    """Gradients of the embedding to the input and every parameter."""
    scales = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)
    inputs = [x, *(it for it in layer.parameters() if it.requires_grad)]
    return list(torch.autograd.grad((out * scales).sum(), inputs))


def check_gradients(layer: GlobalPool, *inputs: Any) -> None:
    """Compare with finite differences, in the input and every parameter at once."""
    layer = layer.double()
    names = [name for name, _ in layer.named_parameters()]
    x, *rest = inputs

    def run(x: Tensor, *values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        out: Tensor = torch.func.functional_call(layer, parameters, (x, *rest))
        return out

    # Away from where they start, such as prototypes of norm 1, beyond which they are normalized.
    moved = [0.9 * it + 0.01 for it in layer.parameters()]
    free = [it.detach().clone().requires_grad_() for it in (x, *moved)]
    assert torch.autograd.gradcheck(run, free, fast_mode=True)


@each
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    check_gradients(layer_of(name), maps(2, 2, 3, torch.float64))


@each_set
def test_gradients_with_a_mask_are_those_of_finite_differences(name: str) -> None:
    layer = layer_of(name, sequence=True)
    check_gradients(layer, tokens(2, 5, torch.float64), random_mask(2, 5))


def test_poolings_of_sets_are_those_with_a_class_for_sequences() -> None:
    assert {name for name, (_, on_tokens) in POOLINGS.items() if on_tokens is None} == (
        MAPS_ONLY & set(NAMES)
    )


@each_set
def test_the_order_of_positions_does_not_matter(name: str) -> None:
    layer, x = layer_of(name).double(), maps(dtype=torch.float64)
    order = torch.randperm(12, generator=source(1))
    plain = layer.pool(x)
    mixed = layer.pool(x.flatten(2)[..., order].unflatten(-1, (3, 4)))
    torch.testing.assert_close(mixed.embedding, plain.embedding)
    if plain.weights is not None:
        torch.testing.assert_close(mixed.weights.flatten(1), plain.weights.flatten(1)[:, order])


@each
@pytest.mark.parametrize(("height", "width"), [(1, 1), (6, 2)])
def test_maps_of_any_shape_are_pooled(name: str, height: int, width: int) -> None:
    layer = layer_of(name)
    x = maps(3, height, width).requires_grad_()
    out = layer.pool(x)
    assert out.embedding.shape == (3, layer.out_channels(CHANNELS))
    assert all(it.isfinite().all() for it in (out.embedding, *gradients(layer, out.embedding, x)))
    assert out.weights is None or out.weights.shape == (3, height, width)


@each
def test_weights_are_shares(name: str) -> None:
    weights = layer_of(name).pool(maps(3, 3, 4)).weights
    if weights is not None:
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum((1, 2)), torch.ones(3))


@each
def test_calling_gives_the_embedding_alone(name: str) -> None:
    layer, x = layer_of(name), maps()
    embedding = layer.pool(x).embedding
    torch.testing.assert_close(layer(x), embedding)
    kept = layer_of(name, flatten=False)(x)
    torch.testing.assert_close(kept, embedding[..., None, None])


@each
def test_maps_give_the_same_numbers_in_every_format(name: str) -> None:
    last = maps().permute(0, 2, 3, 1).contiguous()
    for mask in (None,) if name in MAPS_ONLY else (None, random_mask(2, 3, 4)):
        expected = layer_of(name).pool(maps(), mask)
        torch.testing.assert_close(layer_of(name, input_fmt="NHWC").pool(last, mask), expected)


@each_set
def test_a_map_is_a_sequence_of_its_positions(name: str) -> None:
    whole = layer_of(name).pool(maps())
    for input_fmt, x in (("NCL", maps().flatten(2)), ("NLC", maps().flatten(2).mT)):
        flat = layer_of(name, sequence=True, input_fmt=input_fmt).pool(x)
        torch.testing.assert_close(flat.embedding, whole.embedding)
        torch.testing.assert_close(flat.attributes, whole.attributes)
        if whole.weights is not None:
            torch.testing.assert_close(flat.weights, whole.weights.flatten(1))


@each_set
@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_masked_positions_have_no_influence(name: str, garbage: float) -> None:
    layer, x, mask = layer_of(name, sequence=True), tokens(3, 9), random_mask(3, 9, seed=2)
    spoilt = x.masked_fill(~mask.unsqueeze(-1), garbage).requires_grad_()
    out = layer.pool(spoilt, mask)
    if hasattr(layer, "plan"):
        plan = layer.plan(spoilt, mask)
        torch.testing.assert_close(plan, layer.plan(x, mask))
        assert not plan.mT[~mask].any()
    for image in range(3):
        alone = layer.pool(x[image : image + 1, mask[image]])
        torch.testing.assert_close(out.embedding[image], alone.embedding[0])
        if alone.weights is not None:
            torch.testing.assert_close(out.weights[image, mask[image]], alone.weights[0])
    assert out.weights is None or not out.weights[~mask].any()
    found = gradients(layer, out.embedding, spoilt)
    assert all(it.isfinite().all() for it in found)
    assert not found[0][~mask].any()


@each
def test_images_are_pooled_one_by_one(name: str) -> None:
    layer, x = layer_of(name), maps(3)
    whole = layer.pool(x)
    for image in range(3):
        alone = layer.pool(x[image : image + 1])
        torch.testing.assert_close(alone.embedding[0], whole.embedding[image])
        if whole.weights is not None:
            torch.testing.assert_close(alone.weights[0], whole.weights[image])


@each
def test_autocast_changes_little(name: str) -> None:
    layer, x = layer_of(name), maps().requires_grad_()
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for it in (x, x.bfloat16()):
            out = layer(it)
            assert (out - expected).norm() <= 0.03 * expected.norm()
    assert all(it.isfinite().all() for it in gradients(layer, out.float(), x))


@each
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_any_magnitude_gives_finite_numbers(name: str, scale: float) -> None:
    layer, x = layer_of(name), (scale * maps()).requires_grad_()
    out = layer.pool(x)
    for it in (out.embedding, *gradients(layer, out.embedding, x)):
        assert it.isfinite().all()
    if out.weights is not None:
        assert (out.weights >= 0).all()
        torch.testing.assert_close(out.weights.sum((1, 2)), torch.ones(2))


@each
def test_state_makes_a_round_trip(name: str) -> None:
    layer, other, x = layer_of(name), layer_of(name), maps()
    with torch.no_grad():
        for it in layer.parameters():
            it.add_(0.1 * torch.rand(it.shape, generator=source(1)))
    assert not list(layer.parameters()) or not torch.equal(layer(x), other(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))


@each
def test_layers_say_what_they_are(name: str) -> None:
    layer = layer_of(name)
    assert type(layer) is POOLINGS[name][0]
    assert layer.pool_type == name
    assert layer.is_identity() is False
    length = layer(maps()).shape[-1]
    assert layer.out_channels(CHANNELS) == length
    if layer.linear_map == "inside":
        assert length == EMBEDDING
    else:
        assert layer.feat_mult() * CHANNELS == length


@pytest.mark.parametrize("name", INSIDE)
def test_feat_mult_is_the_embedding_size_per_channel(name: str) -> None:
    assert build_pooling(name, CHANNELS, embedding_size=16 * CHANNELS).feat_mult() == 16


@each
def test_reset_reaches_every_parameter(name: str) -> None:
    layer, expected = layer_of(name), dict(layer_of(name).named_parameters())
    other = dict(layer_of(name, draw=1).named_parameters())
    with torch.no_grad():
        for it in layer.parameters():
            it.fill_(math.nan)
    layer.reset_parameters()
    for path, it in layer.named_parameters():
        assert it.isfinite().all(), path
        if torch.equal(expected[path], other[path]):  # not drawn
            assert torch.equal(it, expected[path]), path


@each
def test_a_seed_draws_the_parameters_of_the_stored_results(name: str) -> None:
    values = [it.detach().flatten() for it in layer_of(name).parameters()]
    drawn = torch.cat([*values, torch.rand(1)]).double()  # and as many numbers
    found = float(drawn @ torch.linspace(1, 2, len(drawn)).double())
    assert found == pytest.approx(DRAWN[name], rel=1e-4)


def short_of(name: str, solver: Solver) -> GlobalPool:
    """A layer that has this solver, where it has one: of few steps, since all compile alike."""
    return layer_of(name, **{"solver": solver} if "solver" in pooling_options(name) else {})


@pytest.mark.process
@each
def test_layers_compile_whole(name: str) -> None:
    torch._dynamo.reset()
    layer = short_of(name, Iterative(steps=1, unroll=True))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = maps().requires_grad_()
    got, expected = compiled(x), layer(x)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(layer, got, x), gradients(layer, expected, x))


@pytest.mark.process
@each
def test_layers_export_with_open_sizes(name: str) -> None:
    layer = short_of(name, Exact(steps=1)).eval()
    sizes = {0: Dim("batch"), 2: Dim("height"), 3: Dim("width")}
    exported = torch.export.export(layer, (maps(),), dynamic_shapes=(sizes,)).module()
    for shape in ((3, 5, 3), (1, 1, 1)):
        x = maps(*shape)
        torch.testing.assert_close(exported(x), layer(x))


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_may_have_another_precision_than_the_layer(name: str, dtype: torch.dtype) -> None:
    layer = layer_of(name).eval()
    x = maps(dtype=dtype)
    embedding = layer(x)
    assert embedding.dtype == dtype
    torch.testing.assert_close(embedding.float(), layer(x.float()), rtol=0.03, atol=0.03)


@each
@pytest.mark.parametrize("own", [torch.float32, torch.float64])
def test_float64_may_meet_float32_under_autocast(name: str, own: torch.dtype) -> None:
    layer = layer_of(name).eval().to(own)
    other = torch.float64 if own == torch.float32 else torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embedding = layer(maps(dtype=other))
    assert embedding.dtype == other
    torch.testing.assert_close(embedding, layer(maps(dtype=other)), rtol=0.03, atol=0.03)
