"""The layers compile whole, forward and backward."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pooling.layers import gsp1d, gsp2d, maps, tokens
from sumpool.transport import Exact, partial_transport
from transport.generators import random_cost, random_mask

pytestmark = pytest.mark.process

COMPILERS = ("g++", "clang++", "c++")
COMPILER = next(filter(None, map(shutil.which, COMPILERS)), None)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradients(run: Any, layer: torch.nn.Module, x: Tensor, *rest: Any) -> list[Tensor]:
    """The output and its gradients to the input and every parameter."""
    inputs = [x.clone().requires_grad_(), *layer.parameters()]
    out = run(inputs[0], *rest)
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


def short2d(**options: Any) -> torch.nn.Module:
    """A layer whose solver takes few steps, which all are compiled alike."""
    return gsp2d(solver=Exact(steps=2), **options)


def compare(layer: torch.nn.Module, x: Tensor, *rest: Any, backend: str = "aot_eager") -> None:
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    got, expected = gradients(compiled, layer, x, *rest), gradients(layer, layer, x, *rest)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_layer_compiles() -> None:
    compare(gsp2d(), maps())


def test_a_layer_compiles_with_a_mask() -> None:
    compare(short2d(), maps(), random_mask(3, 5, 6))


def test_a_layer_with_learned_settings_compiles() -> None:
    compare(short2d(learn_mu=True, learn_eps=True, background=True), maps())


def test_a_layer_of_sequences_compiles_with_a_prefix() -> None:
    compare(gsp1d(num_prefix_tokens=1, flatten=False, solver=Exact(steps=2)), tokens())


def test_weights_and_attributes_compile() -> None:
    layer = short2d()
    compiled = torch.compile(layer.pool, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(maps()), layer.pool(maps()), strict=True):
        torch.testing.assert_close(a, b)


def test_the_function_compiles() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def weights(cost: Tensor, mu: Tensor) -> Tensor:
        return partial_transport(cost, mu, 5.0, solver=Exact(steps=8)).weights

    cost, mu = random_cost(2, 20, 5), torch.tensor([0.3, 1.0], dtype=torch.float64)
    torch.testing.assert_close(weights(cost, mu), partial_transport(cost, mu, 5.0).weights)


def test_a_layer_compiles_once_for_all_sizes() -> None:
    layer = short2d().eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in ((2, 4, 5), (3, 7, 6), (5, 8, 9)):
        x = maps(*size)
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.skipif(
    COMPILER is None, reason=f"needs a C++ compiler on the path: {' or '.join(COMPILERS)}"
)
def test_a_layer_compiles_to_native_code() -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": COMPILER}):  # of itself it looks for one of them alone
        compare(short2d(), maps(), backend="inductor")


def test_compiled_training_before_initialization_says_what_to_do() -> None:
    layer = short2d(init="k-center")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    match = r"prototypes are not initialized: call initialize_prototypes"
    with pytest.raises(RuntimeError, match=match):
        compiled(maps())
    torch._dynamo.reset()
    layer.initialize_prototypes(maps())
    torch.testing.assert_close(compiled(maps()), layer(maps()))


def test_compiled_evaluation_needs_no_initialization() -> None:
    layer = short2d(init="k-center").eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(maps()), layer(maps()))
