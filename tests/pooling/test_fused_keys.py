"""The kernels of GSP on keys compute what torch computes: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from sumpool.pooling import KeyedSumPool2d
from transport.ahead_of_time import compiled
from transport.interpreted import DEVICE, EXPECTED_WARNINGS

pytest.importorskip("triton", reason="the fused kernels need Triton")

pytestmark = EXPECTED_WARNINGS


def layer(channels: int, **options: Any) -> KeyedSumPool2d:
    """A layer in the middle of its training."""
    torch.manual_seed(0)
    pool = KeyedSumPool2d(channels, **{"start": "random", "fused": True, **options})
    with torch.no_grad():
        pool.prototypes.normal_()
        if pool.norm is not None:
            pool.norm.weight.uniform_(0.5, 1.5)
            pool.norm.bias.normal_()
    return pool.to(DEVICE)


def maps(batch: int, channels: int, side: int) -> Tensor:
    g = torch.Generator().manual_seed(1)
    return (2 * torch.randn(batch, channels, side, side, generator=g) + 0.5).to(DEVICE)


def results(pool: KeyedSumPool2d, x: Tensor) -> dict[str, Tensor]:
    """Embedding, weights, and the gradients of both to everything."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    out = pool.pool(x)
    g = torch.Generator().manual_seed(2)
    loss = sum(
        (it.double() * torch.randn(it.shape, generator=g, dtype=torch.float64).to(DEVICE)).sum()
        for it in (out.embedding, out.weights)
    )
    named = dict(pool.named_parameters())
    found = torch.autograd.grad(loss, [x, *named.values()])
    return {
        "embedding": out.embedding.detach(),
        "weights": out.weights.detach(),
        **dict(zip(["x", *named], found, strict=True)),
    }


def plain(pool: KeyedSumPool2d) -> KeyedSumPool2d:
    other = copy.deepcopy(pool).double()
    other.fused = False
    return other


@pytest.mark.process
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        pytest.param((2, 20, 5), {}, id="one tile"),
        pytest.param((3, 70, 9), {"mu": 0.2, "eps": 5.0}, id="tiles of positions"),
        pytest.param((2, 300, 3), {"mu": 0.6, "gamma": 0.5}, id="tiles of channels"),
        pytest.param((2, 40, 1), {"mu": 0.5}, id="one position"),
        pytest.param((2, 20, 5), {"eps": 100.0, "gamma": 30.0}, id="sharp"),
        pytest.param((2, 20, 5), {"learn_gamma": False}, id="exponent not learned"),
        pytest.param((2, 20, 5), {"start": "equal"}, id="as it starts"),
    ],
)
def test_fused_equals_plain_in_values_and_gradients(
    sizes: tuple[int, int, int], options: dict[str, Any]
) -> None:
    pool, x = layer(sizes[1], **options), maps(*sizes)
    right = results(plain(pool), x.double())
    sharp = max(1.0, options.get("eps", 1.0) / 10)
    for layout in (torch.contiguous_format, torch.channels_last):
        found = results(pool, x.contiguous(memory_format=layout))
        for name, it in found.items():
            size = max(float(right[name].norm()), 0.1)
            error = float((it.double() - right[name]).norm()) / size
            assert error <= 2e-6 * sharp, (name, error)


@pytest.mark.process
def test_a_mean_far_from_zero_costs_no_digits() -> None:
    pool, x = layer(40), maps(2, 40, 4) + 1000
    found, right = pool.pool(x), plain(pool).pool(x.double())
    torch.testing.assert_close(found.weights.double(), right.weights, rtol=1e-3, atol=1e-5)


@pytest.mark.process
def test_an_exponent_below_its_least_stays() -> None:
    pool, x = layer(20, gamma=0.005), maps(2, 20, 5)
    found, right = results(pool, x), results(plain(pool), x.double())
    torch.testing.assert_close(found["embedding"].double(), right["embedding"], rtol=1e-4, atol=0)
    assert float(found["gamma"]) == float(right["gamma"]) == 0


@pytest.mark.process
def test_the_whole_image_has_equal_weights_and_nothing_to_learn() -> None:
    pool, x = layer(20, mu=1.0), maps(2, 20, 4)
    found, right = results(pool, x), results(plain(pool), x.double())
    torch.testing.assert_close(found["weights"], torch.full_like(found["weights"], 1 / 16))
    torch.testing.assert_close(found["x"].double(), right["x"], rtol=1e-5, atol=1e-6)
    assert float(found["key.weight"].abs().max()) < 1e-20


@pytest.mark.process
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float32(dtype: torch.dtype) -> None:
    pool, x = layer(20), maps(2, 20, 4).to(dtype)
    found, right = results(pool, x), results(plain(pool), x.double())
    assert found["embedding"].dtype == found["x"].dtype == dtype
    torch.testing.assert_close(found["weights"].double(), right["weights"], rtol=1e-5, atol=1e-7)
    assert found["weights"].dtype == torch.float32
    # Nothing depends on the shifts.
    for name in set(found) - {"weights", "norm.bias"}:
        error = (found[name].double() - right[name]).norm() / right[name].norm()
        assert error <= (1 if name in ("embedding", "x") else 2) * torch.finfo(dtype).eps, name


@pytest.mark.process
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_ends_where_plain_training_ends(dtype: torch.dtype) -> None:
    """From equal weights, where only W_k has a gradient, to weights that select."""
    torch.manual_seed(0)
    fused = KeyedSumPool2d(20, fused=True).to(DEVICE)
    x, names = maps(4, 20, 4), [name for name, _ in fused.named_parameters()]
    g = torch.Generator().manual_seed(3)
    target = torch.randn(4, 20, generator=g).to(DEVICE)
    ends = []
    for pool in (fused, plain(fused)):
        optimizer = torch.optim.Adam(pool.parameters(), 0.01)
        given = x.to(dtype) if pool is fused else x.to(dtype).double()
        for _ in range(10):
            optimizer.zero_grad()
            (pool(given).to(target.dtype) - target).square().sum().backward()
            optimizer.step()
        ends.append({name: it.detach().double() for name, it in pool.named_parameters()})
        ends[-1]["weights"] = pool.pool(given).weights.detach().double()
    assert float(ends[1]["weights"].std()) > 0.01
    for name in {*names, "weights"} - {"norm.bias"}:
        error = (ends[0][name] - ends[1][name]).norm() / ends[1][name].norm()
        assert error <= (1e-5 if dtype == torch.float32 else 0.02), (name, float(error))


@pytest.mark.process
def test_images_do_not_affect_each_other() -> None:
    pool, x = layer(20), maps(3, 20, 4)
    for one, it in zip(pool(x), x, strict=True):
        torch.testing.assert_close(pool(it[None])[0], one)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prototypes": 2}, "one prototype"),
        ({"values": "normalized"}, "values 'features'"),
        ({"hidden": 5, "start": "equal"}, "no hidden units"),
        ({"gamma": 1.0, "learn_gamma": False}, "gamma is 1"),
        ({"solver": "iterative"}, "solver is not exact"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"fused=True is not possible: .*{reason}"):
        layer(8, **options)(maps(1, 8, 2))


def test_features_and_parameters_that_they_do_not_take() -> None:
    pool = layer(8)
    tokens = torch.rand(2, 4, 8, device=DEVICE)
    assert pool.fused_support(tokens, torch.ones(2, 4, dtype=torch.bool)) == "there is a mask"
    assert pool.fused_support(tokens.double()) == (
        "features are torch.float64, not float32, float16 or bfloat16"
    )
    assert pool.fused_support(tokens[:0]) == "there is no image"
    assert pool.fused_support(torch.empty(1, 20_000, 8)) == (
        "there are 20000 features, more than 16384"
    )
    assert pool.double().fused_support(tokens) == "parameters are torch.float64, not float32"


PROGRAM = """
import warnings
warnings.simplefilter("ignore")
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from sumpool.transport.fused import keyed

KERNELS = ("image_mean", "score_tile", "weigh_image", "power_mean", "share_tile",
           "score_gradient", "query_gradient", "feature_gradient", "sum_images")
count = 0
for name in KERNELS:
    function = getattr(keyed, name)
    for features, flag in CASES:
        constants = {"BLOCK_N": 16, "BLOCK_D": 32, "BLOCK_B": 16, "BLOCK_ALL": 16}
        constants |= {"HAS_GW": flag, "FAST": not flag}
        constants |= {} if flag else {"gw_ptr": None}
        constants = {it: v for it, v in constants.items() if it in function.arg_names}
        def kind(it):
            if it in constants:
                return "constexpr"
            if it.endswith("_ptr"):
                half = it in ("f_ptr", "df_ptr", "embedding_ptr", "ge_ptr")
                half |= it in ("left_ptr", "right_ptr", "to_asks_ptr")
                return f"*{features}" if half else "*fp32"
            return "fp32" if it in ("mu", "rest", "factor", "edge", "floor") else "i32"
        signature = {it: kind(it) for it in function.arg_names}
        index = {(function.arg_names.index(it),): v for it, v in constants.items()}
        source = ASTSource(function, signature, index)
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        count += 1
print("compiled", count)
"""


@pytest.mark.process
def test_kernels_compile_for_a_gpu() -> None:
    assert compiled(PROGRAM, [("fp32", True), ("bf16", False)]) == 18
