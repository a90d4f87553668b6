"""The fused Sinkhorn kernels compute what torch computes: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from pooling.layers import CHANNELS, tokens
from sumpool.pooling.rivals import optimal_transport
from sumpool.pooling.rivals.optimal_transport import OptimalTransportPool1d, uniform_transport
from sumpool.transport.fused.limits import FUSED_VARIABLE
from sumpool.transport.sinkhorn import MAX_TILE, fused_sinkhorn_support, sinkhorn
from transport.generators import random_cost, random_mask
from transport.interpreted import DEVICE, EXPECTED_WARNINGS

pytest.importorskip("triton", reason="the fused kernels need Triton")

pytestmark = [pytest.mark.process, *EXPECTED_WARNINGS]


class Case(NamedTuple):
    """Costs of B images and how they are transported."""

    batch: int = 2
    n: int = 9
    m: int = 4
    iterations: int = 5
    eps: float = 5.0
    mask: bool = False


CASES = {
    "powers of two": Case(n=16, m=8),
    "odd sizes": Case(batch=3, n=21, m=6),
    "one feature": Case(n=1, m=5),
    "one prototype": Case(n=7, m=1),
    "one of each": Case(n=1, m=1),
    "one iteration": Case(iterations=1),
    "two iterations, masked": Case(n=12, iterations=2, mask=True),
    "masked": Case(n=30, m=12, mask=True),
    "more prototypes than features": Case(n=5, m=33),
    "as the layer is by default": Case(batch=1, n=49, m=8, iterations=100, eps=10.0),
    "sharp, masked": Case(batch=1, n=20, m=6, iterations=40, eps=100.0, mask=True),
    "smooth": Case(eps=1e-3),
}


#: Cases of the quick tier; one for each path through the kernels.
QUICK = ("odd sizes", "one of each", "two iterations, masked")
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in QUICK else pytest.mark.process)
        for name, case in CASES.items()
    ],
)


def pose(case: Case, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor | None]:
    """Costs in ``dtype`` that want a gradient, and the mask."""
    cost = random_cost(case.batch, case.n, case.m, dtype=torch.float32).to(DEVICE, dtype)
    mask = random_mask(case.batch, case.n).to(DEVICE) if case.mask else None
    return cost.requires_grad_(), mask


def plan_and_gradient(case: Case, dtype: torch.dtype, fused: bool) -> tuple[Tensor, Tensor]:
    cost, mask = pose(case, dtype)
    plan = uniform_transport(cost, case.eps, case.iterations, mask, fused=fused)
    direction = random_cost(*cost.shape, seed=1).to(DEVICE) - 1
    (gradient,) = torch.autograd.grad((plan * direction).sum(), cost)
    return plan.detach(), gradient


@each_case
def test_plan_and_gradient_equal_those_of_torch(case: Case) -> None:
    exact = plan_and_gradient(case, torch.float64, fused=False)
    plain = plan_and_gradient(case, torch.float32, fused=False)
    found = plan_and_gradient(case, torch.float32, fused=True)
    # Sharper problems amplify the rounding of the scores by ε.
    tol = 1e-6 * max(1.0, case.eps / 10)
    for f, p, e in zip(found, plain, exact, strict=True):
        assert f.dtype == torch.float32
        torch.testing.assert_close(f.double(), e, rtol=10 * tol, atol=tol)
        torch.testing.assert_close(f, p, rtol=20 * tol, atol=2 * tol)  # both are rounded


def test_invalid_features_get_nothing_whatever_stands_there() -> None:
    case = Case(n=12, mask=True)
    cost, mask = pose(case)
    assert mask is not None
    filled = cost.detach().masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()
    plans, gradients = [], []
    for it, fused in ((cost, False), (filled, True)):
        plan = uniform_transport(it, 5.0, 5, mask, fused=fused)
        plans.append(plan.detach())
        gradients += torch.autograd.grad(plan.square().sum(), it)
    torch.testing.assert_close(plans[1], plans[0], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-7)
    assert (plans[1][~mask] == 0).all()
    assert (gradients[1][~mask] == 0).all()


@pytest.mark.parametrize("shape", [(12,), (2, 1)])
def test_masks_are_broadcast(shape: tuple[int, ...]) -> None:
    cost = random_cost(2, 12, 4, dtype=torch.float32).to(DEVICE)
    mask = random_mask(*shape).to(DEVICE)
    found = uniform_transport(cost, 5.0, 3, mask, fused=True)
    right = uniform_transport(cost, 5.0, 3, mask.expand(2, 12), fused=False)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(uniform_transport(cost, 5.0, 3, mask, fused=False), right)


def test_very_sharp_problems_stay_finite_and_keep_the_features_marginal() -> None:
    cost = random_cost(2, 20, 6, dtype=torch.float32).to(DEVICE).requires_grad_()
    plan = uniform_transport(cost, 1e4, 10, fused=True)
    torch.testing.assert_close(plan.detach().sum(-1), torch.full((2, 20), 1 / 20, device=DEVICE))
    (gradient,) = torch.autograd.grad(plan.square().sum(), cost)
    assert gradient.isfinite().all()


def test_nan_stays_in_its_image() -> None:
    cost = random_cost(2, 9, 4, dtype=torch.float32).to(DEVICE)
    cost[0, 3, 1] = torch.nan
    plan = uniform_transport(cost, 5.0, 3, fused=True)
    assert plan[0].isnan().all()
    assert plan[1].isfinite().all()


def test_leading_dimensions_and_views() -> None:
    whole = random_cost(2, 3, 4, 10, dtype=torch.float32).to(DEVICE).requires_grad_()
    view = whole.mT[..., 1:, :]  # (2, 3, 9, 4), strided
    found = uniform_transport(view, 5.0, 3, fused=True)
    right = uniform_transport(view, 5.0, 3, fused=False)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-7)
    weights = torch.arange(4.0, device=DEVICE)  # its gradient is expanded
    gradients = [torch.autograd.grad((it.sum((0, 1, 2)) * weights).sum(), whole)[0]
                 for it in (found, right)]  # fmt: skip
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3)])
def test_nothing_to_transport(shape: tuple[int, ...]) -> None:
    cost = torch.zeros(shape, device=DEVICE, requires_grad=True)
    plan = uniform_transport(cost, 5.0, 2, fused=True)
    (gradient,) = torch.autograd.grad(plan.sum(), cost)
    assert plan.shape == gradient.shape == shape


def test_half_precision_is_solved_in_float32_under_autocast_too() -> None:
    cost = random_cost(2, 9, 4, dtype=torch.float32).to(DEVICE, torch.bfloat16).requires_grad_()
    right = uniform_transport(cost.float(), 5.0, 5, fused=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = uniform_transport(cost, 5.0, 5, fused=True)
    assert found.dtype == torch.float32
    assert torch.equal(found, right)
    (gradient,) = torch.autograd.grad(found.square().sum(), cost)
    assert gradient.dtype == torch.bfloat16


def test_a_second_derivative_raises() -> None:
    cost, _ = pose(Case(iterations=2))
    plan = uniform_transport(cost, 5.0, 2, fused=True)
    (first,) = torch.autograd.grad(plan.square().sum(), cost, create_graph=True)
    assert first.isfinite().all()
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice: .* fused=False"):
        torch.autograd.grad(first.square().sum(), cost)
    # As well where what comes back to the plan is a constant.
    plan = uniform_transport(cost, 5.0, 2, fused=True)
    (first,) = torch.autograd.grad(plan[0, 0, 0], cost, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(first.sum(), cost)


def test_little_is_saved_for_the_backward_pass() -> None:
    case = Case(n=10, m=8, iterations=5)
    cost, _ = pose(case)
    saved: dict[int, int] = {}

    def note(t: Tensor) -> Tensor:
        saved[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        uniform_transport(cost, case.eps, case.iterations, fused=True)
    assert sum(saved.values()) <= cost.numel() + case.batch * (case.iterations + 1) * case.m


# The check itself looks at .grad of tensors that are not leaves.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.process
@pytest.mark.parametrize("masked", [False, True])
def test_operators_keep_the_rules_of_custom_operators(masked: bool) -> None:
    from sumpool.transport.sinkhorn.ops import sinkhorn_op

    scores = random_cost(2, 5, 3, dtype=torch.float32).to(DEVICE)
    mask = random_mask(2, 5).to(DEVICE) if masked else None
    tests = ("test_schema", "test_faketensor")
    _, psi = sinkhorn_op(scores, mask, 2)
    backward = torch.ops.sumpool.sinkhorn_backward.default
    torch.library.opcheck(backward, (scores, scores, mask, psi), test_utils=tests)
    torch.library.opcheck(
        sinkhorn_op,
        (scores.requires_grad_(), mask, 2),
        test_utils=(*tests, "test_aot_dispatch_dynamic"),
    )


@pytest.mark.process
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(dynamic: bool) -> None:
    torch._dynamo.reset()

    def loss(cost: Tensor, mask: Tensor) -> Tensor:
        return uniform_transport(cost, 5.0, 3, mask, fused=True).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (12, 7) if dynamic else (12,):
        cost = random_cost(2, n, 4, dtype=torch.float32).to(DEVICE).requires_grad_()
        mask = random_mask(2, n).to(DEVICE)
        (right,) = torch.autograd.grad(loss(cost, mask), cost)
        (found,) = torch.autograd.grad(compiled(cost, mask), cost)
        torch.testing.assert_close(found, right)
    torch._dynamo.reset()


def test_the_layer_gives_the_same_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = OptimalTransportPool1d(CHANNELS, 12, 4, iterations=4, init="random").to(DEVICE)
    x, mask = tokens(2, 10).to(DEVICE).requires_grad_(), random_mask(2, 10).to(DEVICE)
    found: list[list[Tensor]] = []
    for fused in (False, True):
        chosen = partial(uniform_transport, fused=fused)
        monkeypatch.setattr(optimal_transport, "uniform_transport", chosen)
        out = layer.pool(x, mask)
        gradients = torch.autograd.grad(out.embedding.square().sum(), [x, *layer.parameters()])
        found.append([out.embedding, out.weights, *gradients])
    for plain, fused_one in zip(*found, strict=True):
        torch.testing.assert_close(fused_one, plain, rtol=1e-4, atol=1e-5)


def test_demanding_fused_says_why_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = random_cost(2, 9, 4).to(DEVICE)
    with pytest.raises(ValueError, match=r"is not possible: scores are torch\.float64"):
        uniform_transport(cost, 5.0, fused=True)
    large = torch.zeros(1, 1, 1, device=DEVICE).expand(1, MAX_TILE // 16 + 1, 9)
    with pytest.raises(ValueError, match=r"images have 2049 × 9 scores, .* more than 32768"):
        sinkhorn(large, 1, fused=True)
    assert fused_sinkhorn_support(large[:, 1:]) is None
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="scores are on cpu, not on a CUDA device"):
        uniform_transport(cost.float().cpu(), 5.0, fused=True)


def test_fused_is_the_default_on_gpus_only_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost, _ = pose(Case(iterations=2))

    def takes_fused(**options: Any) -> bool:
        scores = torch.zeros_like(cost).requires_grad_()
        return "_Sinkhorn" in str(sinkhorn(scores, 2, **options).grad_fn.next_functions)

    assert takes_fused() == (DEVICE == "cuda")
    assert not takes_fused(fused=False)
    assert takes_fused(fused=True)
    monkeypatch.setenv(FUSED_VARIABLE, "0")
    assert not takes_fused()


def test_exported_code_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def operators() -> set[str]:
        """What runs for scores that pose as CUDA tensors."""
        seen: set[str] = set()

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
                seen.add(str(func))
                return func(*args, **(kwargs or {}))

        with FakeTensorMode(), Watch():
            sinkhorn(torch.zeros(2, 5, 3, device="cuda"), 2)
        return seen

    assert "sumpool.sinkhorn.default" in operators()
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert "sumpool.sinkhorn.default" not in operators()


# Torch calls the mode that finds waiting a prototype feature.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA graphs need a CUDA device")
def test_both_passes_are_captured_in_a_cuda_graph_without_waiting() -> None:
    case = Case(n=100, m=8, iterations=100, eps=10.0, mask=True)
    cost, mask = pose(case)

    def step() -> tuple[Tensor, ...]:
        plan = uniform_transport(cost, case.eps, case.iterations, mask, fused=True)
        return plan.detach(), *torch.autograd.grad(plan.square().sum(), cost)

    right = [it.clone() for it in step()]
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    for f, r in zip(found, right, strict=True):
        torch.testing.assert_close(f, r, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device: slow in the interpreter")
@pytest.mark.parametrize(("n", "m"), [(256, 8), (256, 64), (200, 33), (4096, 8), (256, 128)])
def test_tiles_of_every_size_on_a_gpu(n: int, m: int) -> None:
    case = Case(batch=3, n=n, m=m, iterations=100, eps=10.0, mask=True)
    exact = plan_and_gradient(case, torch.float64, fused=False)
    found = plan_and_gradient(case, torch.float32, fused=True)
    for f, e in zip(found, exact, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-4, atol=1e-6)
