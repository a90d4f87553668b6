"""Layers refuse what they cannot use, and say why."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from pooling.layers import CHANNELS, gsp1d, gsp2d, maps, tokens
from sumpool import GeneralizedSumPool2d, GlobalAveragePool1d, GlobalAveragePool2d
from sumpool.pooling import POOLINGS, build_pooling, pooling_options
from sumpool.pooling.rivals.optimal_transport import uniform_transport

NEED_CHANNELS = [name for name in POOLINGS if build_pooling(name, CHANNELS).channels is not None]
MAP_INSIDE = [name for name, (cls, _) in POOLINGS.items() if cls.linear_map == "inside"]
NEED_MAPS = [name for name, (_, on_tokens) in POOLINGS.items() if on_tokens is None]
#: Options that several poolings have, with values that none accepts.
COUNTS = ("clusters", "grid", "hidden", "iterations", "k", "prototypes", "rank", "reduction")
POSITIVE = ("floor", "p", "ridge")
SHARED = [
    *((option, 0, f"{option} must be at least 1, got 0") for option in COUNTS),
    *(
        (option, value, f"{option} must be a positive finite number, got {value}")
        for option in POSITIVE
        for value in (0.0, -1.0, math.inf, math.nan)
    ),
    ("kernel_size", 4, "kernel_size must be odd and positive, got 4"),
    ("input_fmt", "CHW", r"input_fmt must be one of \('N.*'\), got 'CHW'"),
    ("num_prefix_tokens", -1, "num_prefix_tokens must be an integer of at least 0 .*, got -1"),
    ("seed", -1, r"seed must be an integer from 0 to 2\*\*64 - 1, got -1"),
    ("seed", 2**64, r"seed must be an integer from 0 to 2\*\*64 - 1, got 18446744073709551616"),
    ("seed", True, r"seed must be an integer from 0 to 2\*\*64 - 1, got True"),
    ("init", "best", r"init must be one of \('k-.*', 'random'\), got 'best'"),
]


@pytest.mark.parametrize(("option", "value", "match"), SHARED)
def test_options_out_of_range_are_refused_by_every_pooling(
    option: str, value: Any, match: str
) -> None:
    names = [name for name in POOLINGS if option in pooling_options(name)]
    assert names
    for name in names:
        with pytest.raises(ValueError, match=match):
            build_pooling(name, CHANNELS, **{option: value})


@pytest.mark.parametrize("name", NEED_CHANNELS)
def test_channels_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="channels must be at least 1, got 0"):
        build_pooling(name, 0)
    with pytest.raises(ValueError, match="x must have 5 channels in the layout NCHW, got 8"):
        build_pooling(name, 5, **({"heads": 5} if name == "gsp-heads" else {}))(maps())


@pytest.mark.parametrize("name", MAP_INSIDE)
def test_an_embedding_of_no_size_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"embedding_size must be (at least 1|a positive .*), got 0"
    ):
        build_pooling(name, CHANNELS, embedding_size=0)


@pytest.mark.parametrize("name", NEED_MAPS)
def test_poolings_that_look_at_neighbors_refuse_masks(name: str) -> None:
    match = f"mask must be None for the pooling {re.escape(repr(name))}"
    with pytest.raises(ValueError, match=match):
        build_pooling(name, CHANNELS)(maps(), torch.ones(3, 5, 6, dtype=torch.bool))


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("gsp", {"mu": 0.0}, r"mu must be a number in \(0, 1\], at least 1e-30, got 0\.0"),
        ("gsp", {"mu": 1.5}, r"mu must be a number in \(0, 1\], at least 1e-30, got 1\.5"),
        ("gmp+gsp", {"mu": math.nan}, r"mu must be a number in \(0, 1\], at least .*, got nan"),
        ("gsp", {"eps": 0.0}, r"eps must be a positive finite number up to 1e\+30, got 0\.0"),
        ("gemean+gsp", {"eps": math.inf}, r"eps must be a positive finite .* 1e\+30, got inf"),
        ("gsp", {"mu": 1.0, "background": True}, r"mu must be below 1 with .*background, got 1"),
        ("gsp", {"mu": 1.0, "learn_mu": True}, r"mu must be below 1 with learn_mu .*, got 1\.0"),
        ("gsp", {"solver": "newton"}, r"solver must be one of \['exact', .*\].*, got 'newton'"),
        ("crow", {"eps": 0.0}, r"eps must be a positive finite number, got 0\.0"),
        ("gsop", {"reduced": 0}, "reduced must be None or at least 1, got 0"),
        ("netvlad", {"alpha": 0.0}, r"alpha must be None or a positive finite number, got 0\.0"),
        ("netvlad", {"clusters": 7}, "must be a positive multiple of clusters=7, got 128"),
        ("otp", {"prototypes": 7}, "must be a positive multiple of prototypes=7, got 128"),
        ("otp", {"eps": 0.0}, r"eps must be a positive finite number up to 1e\+30, got 0\.0"),
    ],
)
def test_options_of_a_pooling_out_of_range_are_refused(
    name: str, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        build_pooling(name, CHANNELS, **options)


def test_no_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        uniform_transport(torch.rand(3, 2), 1.0, iterations=0)


def test_formats_of_the_other_kind_are_refused() -> None:
    for build in (gsp2d, GlobalAveragePool2d):
        with pytest.raises(ValueError, match=r"one of \('NCHW', 'NHWC'\), got 'NLC'"):
            build(input_fmt="NLC")
    for build in (gsp1d, GlobalAveragePool1d):
        with pytest.raises(ValueError, match=r"one of \('NLC', 'NCL'\), got 'NCHW'"):
            build(input_fmt="NCHW")
    with pytest.raises(ValueError, match=r"num_prefix_tokens must be .* 0 for maps, got 1"):
        gsp2d(num_prefix_tokens=1)


@pytest.mark.parametrize("build", [gsp2d, GlobalAveragePool2d])
@pytest.mark.parametrize("training", [True, False])
def test_inputs_of_a_wrong_rank_are_refused(build: Any, training: bool) -> None:
    layer = build().train(training)
    with pytest.raises(ValueError, match=r"x must have 4 dimensions \(NCHW\), got shape \(3, 30"):
        layer(tokens())


@pytest.mark.parametrize("build", [gsp1d, GlobalAveragePool1d])
@pytest.mark.parametrize("prefix", [30, 31])
def test_prefixes_that_leave_no_token_are_refused(build: Any, prefix: int) -> None:
    match = rf"x has 30 tokens, which leaves none behind num_prefix_tokens={prefix}"
    with pytest.raises(ValueError, match=match):
        build(num_prefix_tokens=prefix)(tokens())


@pytest.mark.parametrize("build", [gsp2d, GlobalAveragePool2d])
def test_masks_of_a_wrong_shape_are_refused(build: Any) -> None:
    layer = build()
    for shape in ((3, 5), (3, 30), (2, 5, 6), (3, 6, 5), (5, 6)):
        with pytest.raises(ValueError, match=r"mask must have shape \(3, 5, 6\), got \("):
            layer(maps(), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("build", [gsp2d, GlobalAveragePool2d])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_masks_of_numbers_are_refused(build: Any, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"mask must be a boolean tensor .*got {dtype}"):
        build()(maps(), torch.ones(3, 5, 6, dtype=dtype))


@pytest.mark.parametrize("build", [gsp2d, GlobalAveragePool2d])
def test_masks_without_a_valid_position_are_refused(build: Any) -> None:
    mask = torch.ones(3, 5, 6, dtype=torch.bool)
    mask[1] = False
    match = r"mask must leave at least one valid feature per image, image \[1\] has none"
    with pytest.raises(ValueError, match=match):
        build()(maps(), mask)


@pytest.mark.parametrize("build", [gsp2d, GlobalAveragePool2d])
def test_empty_maps_are_refused(build: Any) -> None:
    with pytest.raises(ValueError, match=r"n >= 1|at least one position"):
        build()(maps(height=0))


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integer_maps_are_refused(name: str, dtype: torch.dtype) -> None:
    layer = build_pooling(name, channels=8).eval()
    with pytest.raises(TypeError, match=rf"x must be a floating-point tensor, got {dtype}"):
        layer(torch.ones(3, 8, 5, 6, dtype=dtype))


def test_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match=r"x must be a torch\.Tensor, got ndarray"):
        gsp2d()(torch.ones(3, 8, 5, 6).numpy())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"prototypes": 2.5}, "prototypes must be an integer of at least 1, got 2.5"),
        ({"prototypes": "4"}, "prototypes must be an integer of at least 1, got '4'"),
        ({"channels": 2.0}, "channels must be an integer of at least 1, got 2.0"),
        ({"mix": "a"}, "mix must be a number, got 'a'"),
        ({"spread": "a"}, "spread must be a number, got 'a'"),
    ],
)
def test_options_of_other_types_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        GeneralizedSumPool2d(**{"channels": 8, **options})


def test_numbers_of_numpy_are_numbers() -> None:
    layer = GeneralizedSumPool2d(
        np.int64(8), np.int64(4), mu=np.float16(0.5), eps=np.float16(5), seed=np.int64(3)
    )
    assert (float(layer.mu), float(layer.eps)) == (0.5, 5.0)
    assert layer(torch.rand(2, 8, 3, 3)).shape == (2, 8)


def test_too_few_features_to_start_from_are_refused() -> None:
    layer = GeneralizedSumPool2d(8, prototypes=64)
    match = r"initializing 64 prototypes needs at least as many .*, got 30: call initialize_proto"
    with pytest.raises(ValueError, match=match):
        layer(maps(batch=1))
    with pytest.raises(ValueError, match=match):
        layer.initialize_prototypes(maps(batch=1))
    layer(maps(batch=3))  # a larger batch will do
    GeneralizedSumPool2d(8, prototypes=64, init="random")(maps(batch=1))


@pytest.mark.parametrize("mask", [torch.ones(3, 5, 6), torch.ones(3, 6, 5, dtype=torch.bool)])
def test_a_refused_mask_leaves_the_prototypes_alone(mask: torch.Tensor) -> None:
    layer = gsp2d(init="k-center")
    before = layer.prototypes.clone()
    with pytest.raises((TypeError, ValueError), match=r"mask must"):
        layer(maps(), mask)
    with pytest.raises((TypeError, ValueError), match=r"mask must"):
        layer.initialize_prototypes(maps(), mask)
    assert torch.equal(layer.prototypes, before)
    layer(maps())
    assert not torch.equal(layer.prototypes, before)
