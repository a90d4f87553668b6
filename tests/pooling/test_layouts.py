"""One pooling, every layout: formats, flattening, memory order, prefix tokens, dtypes, devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pooling.layers import CHANNELS, gsp1d, gsp2d, maps, tokens
from sumpool import GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling import GlobalPool
from sumpool.transport import sum_pool
from transport.generators import random_mask

Build = Callable[..., GlobalPool]
POOLS_2D = [gsp2d, GlobalAveragePool2d]
POOLS_1D = [gsp1d, GlobalAveragePool1d]


def test_the_layer_is_the_function() -> None:
    x, mask = tokens(), random_mask(3, 30)
    layer = gsp1d(mu=0.4, eps=7.0)
    got = layer.pool(x, mask)
    expected = sum_pool(x, layer.prototypes, 0.4, 7.0, mask=mask)
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(layer(x, mask), got.embedding)


@pytest.mark.parametrize("build", POOLS_2D)
def test_weights_and_attributes_have_the_shape_of_the_map(build: Build) -> None:
    out = build().pool(maps())
    assert out.embedding.shape == (3, CHANNELS)
    assert out.weights is not None
    assert out.weights.shape == (3, 5, 6)
    torch.testing.assert_close(out.weights.sum((1, 2)), torch.ones(3))
    if build is gsp2d:
        assert out.attributes is not None
        torch.testing.assert_close(out.attributes.sum(-1), torch.ones(3))
    else:
        assert out.attributes is None


@pytest.mark.parametrize(
    ("build", "input_fmt", "x", "kept"),
    [
        (gsp2d, "NCHW", maps(), (3, CHANNELS, 1, 1)),
        (gsp2d, "NHWC", maps().permute(0, 2, 3, 1), (3, 1, 1, CHANNELS)),
        (gsp1d, "NLC", tokens(), (3, 1, CHANNELS)),
        (gsp1d, "NCL", tokens().mT, (3, CHANNELS, 1)),
    ],
    ids=["NCHW", "NHWC", "NLC", "NCL"],
)
def test_flatten_keeps_or_drops_the_pooled_dimensions(
    build: Build, input_fmt: str, x: Tensor, kept: tuple[int, ...]
) -> None:
    flat = build(input_fmt=input_fmt)(x)
    full = build(input_fmt=input_fmt, flatten=False)
    assert flat.shape == (3, CHANNELS)
    assert full(x).shape == kept
    assert torch.equal(full(x).flatten(1), flat)
    assert full.pool(x).embedding.shape == (3, CHANNELS)


@pytest.mark.parametrize("build", POOLS_2D)
def test_memory_order_does_not_matter(build: Build) -> None:
    x = maps()
    layer = build()
    expected = layer.pool(x)
    got = layer.pool(x.contiguous(memory_format=torch.channels_last))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("input_fmt", ["NLC", "NCL"])
@pytest.mark.parametrize("build", POOLS_1D)
def test_prefix_tokens_are_dropped(build: Build, input_fmt: str) -> None:
    x = tokens()
    garbage = torch.cat([torch.full((3, 2, CHANNELS), 1e3), x], 1)
    mask = random_mask(3, 30)
    for it in (None, mask):
        expected = build(input_fmt="NLC").pool(x, it)
        layer = build(input_fmt=input_fmt, num_prefix_tokens=2)
        got = layer.pool(garbage if input_fmt == "NLC" else garbage.mT, it)
        assert got.weights is not None
        assert got.weights.shape == (3, 30)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_layers_say_what_they_are() -> None:
    text = repr(gsp2d(mu=0.25, eps=3.0, learn_mu=True))
    for part in ("8", "prototypes=4", "mu=0.25 (learned)", "eps=3.0", "input_fmt='NCHW'"):
        assert part in text


def test_parameters_take_the_given_dtype() -> None:
    layer = gsp2d(dtype=torch.float64, learn_mu=True, learn_eps=True)
    assert {it.dtype for it in layer.parameters()} == {torch.float64}
    out = layer.pool(maps(dtype=torch.float64))
    assert {it.dtype for it in out} == {torch.float64}
    # The same prototypes whatever the dtype.
    torch.testing.assert_close(layer.prototypes.float(), gsp2d().prototypes)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_maps_give_half_precision_embeddings(half: torch.dtype) -> None:
    layer = gsp2d(dtype=half)
    out = layer.pool(maps().to(half))
    assert out.embedding.dtype == half
    assert out.weights is not None
    assert out.weights.dtype == torch.float32
    torch.testing.assert_close(out.weights.sum((1, 2)), torch.ones(3))
    mixed = gsp2d()(maps().to(half))
    assert mixed.dtype == half


def test_layers_are_built_on_meta_and_filled_later() -> None:
    layer = gsp2d(device="meta", learn_mu=True)
    assert {it.device.type for it in layer.parameters()} == {"meta"}
    layer.to_empty(device="cpu").reset_parameters()
    expected = gsp2d(learn_mu=True)
    for got, want in zip(layer.parameters(), expected.parameters(), strict=True):
        assert torch.equal(got, want)


def test_layers_are_built_under_a_default_device() -> None:
    with torch.device("meta"):
        layer = gsp2d(init="k-center")
    assert {it.device.type for it in layer.parameters()} == {"meta"}
    saved = gsp2d(seed=3).state_dict()
    layer.load_state_dict(saved, assign=True)
    assert torch.equal(layer(maps()), gsp2d(seed=3)(maps()))
