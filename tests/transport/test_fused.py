"""The fused kernels compute what the plain path computes: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from sumpool.transport import Iterative, fused_support, sum_pool
from sumpool.transport.fused.limits import FUSED_VARIABLE
from transport.generators import random_features, random_mask
from transport.interpreted import DEVICE, EXPECTED_WARNINGS

pytest.importorskip("triton", reason="the fused kernels need Triton")

pytestmark = [pytest.mark.process, *EXPECTED_WARNINGS]


class Case(NamedTuple):
    """A problem of B images and how it is posed."""

    batch: int = 2
    n: int = 21
    d: int = 20
    m: int = 10
    mu: float = 0.3
    eps: float = 5.0
    mask: bool = False
    background: bool = False
    tensors: bool = False
    channels_first: bool = False
    dtype: torch.dtype = torch.float32
    scale: float = 1.0


CASES = {
    "one tile": Case(batch=3),
    "odd sizes, maps": Case(n=50, d=40, m=10, channels_first=True, scale=3.0),
    "masked": Case(m=17, mask=True),
    "background, learned": Case(mu=0.7, background=True, tensors=True),
    "tiles, masked, learned": Case(n=70, mask=True, tensors=True),
    "tiles, background, masked": Case(
        n=130, d=96, m=20, mu=0.8, eps=20.0, background=True, mask=True, tensors=True
    ),
    "one feature": Case(n=1),
    "average pooling": Case(mu=1.0),
    "sharp": Case(mu=0.2, eps=200.0),
    "smooth": Case(eps=1e-3),
    "nearly all": Case(mu=1 - 1e-6),
    "nearly none": Case(mu=1e-3),
    "many prototypes": Case(batch=1, n=33, m=200, d=20),
}
#: Cases of the quick tier; one for each path through the kernels.
QUICK = ("masked", "background, learned", "tiles, masked, learned", "one feature")
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in QUICK else pytest.mark.process)
        for name, case in CASES.items()
    ],
)


def pose(case: Case, dtype: torch.dtype) -> tuple[dict[str, Any], list[Tensor]]:
    """Arguments of ``sum_pool`` in ``dtype``, and the tensors among them that want a gradient."""
    features, prototypes = random_features(case.batch, n=case.n, m=case.m, d=case.d)
    features = (features * case.scale).to(case.dtype).to(dtype).to(DEVICE)
    if case.channels_first:
        features = features.transpose(1, 2).contiguous().transpose(1, 2)
    weights_dtype = torch.float32 if dtype != torch.float64 else dtype
    prototypes = prototypes.float().to(weights_dtype).to(DEVICE)
    wanted = [features.detach().requires_grad_(), prototypes.detach().requires_grad_()]
    mu: float | Tensor = case.mu
    eps: float | Tensor = case.eps
    if case.tensors:
        mu = torch.tensor(case.mu, dtype=weights_dtype, device=DEVICE, requires_grad=True)
        eps = torch.tensor(case.eps, dtype=weights_dtype, device=DEVICE, requires_grad=True)
        wanted += [mu, eps]
    mask = random_mask(case.batch, case.n).to(DEVICE) if case.mask else None
    arguments = {
        "features": wanted[0],
        "prototypes": wanted[1],
        "mu": mu,
        "eps": eps,
        "mask": mask,
        "background": case.background,
    }
    return arguments, wanted


def outputs_and_gradients(case: Case, dtype: torch.dtype, fused: bool) -> list[Tensor]:
    arguments, wanted = pose(case, dtype)
    out = sum_pool(**arguments, fused=fused)
    g = torch.Generator().manual_seed(1)
    loss = sum(
        (o.double() * torch.randn(o.shape, generator=g, dtype=torch.float64).to(DEVICE)).sum()
        for o in out
    )
    return [o.detach() for o in out] + list(torch.autograd.grad(loss, wanted))


def relative_error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).norm() / right.double().norm().clamp_min(1e-30))


@each_case
def test_fused_equals_plain_in_values_and_gradients(case: Case) -> None:
    right = outputs_and_gradients(case, torch.float64, fused=False)
    found = outputs_and_gradients(case, torch.float32, fused=True)
    # Sharper problems amplify the rounding of the costs by ε; the gradients to μ and ε are single
    # numbers that come out of sums with cancellation.
    tol = 2e-6 * max(1.0, case.eps / 10)
    for i, (f, r) in enumerate(zip(found, right, strict=True)):
        assert relative_error(f, r) <= (tol if i < 5 else 500 * tol), i


def test_few_programs_share_out_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(batch=4, n=8, m=4, tensors=True)
    right = outputs_and_gradients(case, torch.float64, fused=False)
    outputs_and_gradients(case, torch.float32, fused=True)
    monkeypatch.setattr("sumpool.transport.fused.ops.BACKWARD_PROGRAMS", 3)
    found = outputs_and_gradients(case, torch.float32, fused=True)
    for i, (f, r) in enumerate(zip(found, right, strict=True)):
        assert relative_error(f, r) <= (2e-6 if i < 5 else 1e-3), i


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float32(dtype: torch.dtype) -> None:
    case = Case(dtype=dtype)
    right = outputs_and_gradients(case, torch.float64, fused=False)
    found = outputs_and_gradients(case, dtype, fused=True)
    assert found[0].dtype == dtype
    assert found[1].dtype == found[2].dtype == torch.float32
    assert relative_error(found[1], right[1]) <= 2e-6
    assert relative_error(found[2], right[2]) <= 2e-6
    rounding = torch.finfo(dtype).eps
    for i in (0, 3, 4):
        assert relative_error(found[i], right[i]) <= rounding


def test_mu_one_is_average_pooling_bit_for_bit() -> None:
    arguments, _ = pose(Case(mu=1.0), torch.float32)
    weights = sum_pool(**arguments, fused=True).weights
    assert torch.equal(weights, torch.full_like(weights, 1 / 21))


@pytest.mark.parametrize("eps", [1e-3, 1e3])
@pytest.mark.parametrize("mu", [1e-3, 1 - 1e-6])
def test_extremes_stay_finite_and_sum_to_one(mu: float, eps: float) -> None:
    features, prototypes = random_features(3, n=10, m=4, d=16, dtype=torch.float32)
    features[0] = features[0, :1]  # identical features
    features[1, :4] = prototypes  # features on prototypes
    features[2, :5], features[2, 5:] = 0, features[2, 5:] * 1e4
    features = features.to(DEVICE).requires_grad_()
    prototypes = prototypes.to(DEVICE).requires_grad_()
    out = sum_pool(features, prototypes, mu, eps, fused=True)
    assert float((out.weights.detach().sum(-1) - 1).abs().max()) <= 1e-5
    total = out.embedding.sum() + out.weights.square().sum() + out.attributes.square().sum()
    for g in torch.autograd.grad(total, (features, prototypes)):
        assert g.isfinite().all()


def test_nan_features_give_nan_and_end() -> None:
    arguments, _ = pose(Case(), torch.float32)
    with torch.no_grad():
        arguments["features"][0, 3, 0] = torch.nan
    out = sum_pool(**arguments, fused=True)
    assert out.embedding[0].isnan().any()
    assert out.embedding[1].isfinite().all()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_output_alone_has_its_gradient(which: int) -> None:
    gradients = []
    for fused in (False, True):
        arguments, wanted = pose(Case(tensors=True, n=12, m=4), torch.float32)
        out = sum_pool(**arguments, fused=fused)[which]
        gradients.append(torch.autograd.grad(out.square().sum(), wanted))
    for plain, fused in zip(*gradients, strict=True):
        assert relative_error(fused, plain) <= 1e-3


def test_views_and_leading_dimensions_are_read_in_place() -> None:
    features, prototypes = random_features(2, 3, n=50, m=4, d=16, dtype=torch.float32)
    view = features.to(DEVICE)[..., 1:, :]  # tokens behind a prefix
    found = sum_pool(view, prototypes.to(DEVICE), 0.3, 5.0, fused=True)
    right = sum_pool(view, prototypes.to(DEVICE), 0.3, 5.0, fused=False)
    for f, r in zip(found, right, strict=True):
        torch.testing.assert_close(f, r, rtol=1e-5, atol=1e-6)


def test_problems_of_like_shape_do_not_share_a_variant() -> None:
    features, prototypes = random_features(2, n=16, m=16, d=16, dtype=torch.float32)
    features, prototypes = features.to(DEVICE), prototypes.to(DEVICE)
    for m in (16, 15, 16, 14):  # tiles of the same size, integers of other divisibility
        found = sum_pool(features, prototypes[:m], 0.3, 5.0, fused=True)
        right = sum_pool(features, prototypes[:m], 0.3, 5.0, fused=False)
        torch.testing.assert_close(found.attributes, right.attributes, rtol=1e-5, atol=1e-6)


def test_second_derivatives_equal_the_plain_path() -> None:
    found = []
    for fused in (False, True):
        arguments, wanted = pose(Case(n=12, d=8, m=4, tensors=True), torch.float32)
        out = sum_pool(**arguments, fused=fused)
        loss = out.embedding.square().sum() + out.attributes.square().sum()
        first = torch.autograd.grad(loss, wanted, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))
    for plain, fused in zip(*found, strict=True):
        assert relative_error(fused, plain) <= 1e-4


def test_nothing_of_size_n_by_m_is_saved_for_the_backward_pass() -> None:
    case = Case(n=70, d=16, m=64)
    arguments, wanted = pose(case, torch.float32)
    saved: dict[int, int] = {}

    def note(t: Tensor) -> Tensor:
        saved[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        sum_pool(**arguments, fused=True)
    inputs = sum(t.numel() for t in wanted)
    assert sum(saved.values()) <= inputs + case.batch * (case.n + case.d + case.m)


# The check itself looks at .grad of tensors that are not leaves.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.process
def test_operator_keeps_the_rules_of_custom_operators() -> None:
    features, prototypes = random_features(2, n=9, m=4, d=16, dtype=torch.float32)
    features = features.to(DEVICE).requires_grad_()
    prototypes = prototypes.to(DEVICE).requires_grad_()
    sum_pool(features, prototypes, 0.3, 5.0, fused=True)  # registers the operators
    torch.library.opcheck(
        torch.ops.sumpool.sum_pool.default,
        (features, prototypes, 0.3, 5.0, None, None, None, False),
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
    )


@pytest.mark.process
def test_compile_without_graph_breaks() -> None:
    arguments, wanted = pose(Case(tensors=True), torch.float32)
    settings = {k: v for k, v in arguments.items() if k in ("mask", "background")}

    def loss(f: Tensor, w: Tensor, mu: Tensor, eps: Tensor) -> Tensor:
        out = sum_pool(f, w, mu, eps, fused=True, **settings)
        return out.embedding.square().sum() + out.attributes.square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    right = torch.autograd.grad(loss(*wanted), wanted)
    found = torch.autograd.grad(compiled(*wanted), wanted)
    for f, r in zip(found, right, strict=True):
        torch.testing.assert_close(f, r, rtol=1e-4, atol=1e-6)


@pytest.mark.process
def test_export_keeps_the_operator() -> None:
    class Pool(torch.nn.Module):
        def forward(self, features: Tensor, prototypes: Tensor) -> Tensor:
            return sum_pool(features, prototypes, 0.3, 5.0, fused=True).embedding

    features, prototypes = random_features(2, n=9, m=4, d=16, dtype=torch.float32)
    inputs = (features.to(DEVICE), prototypes.to(DEVICE))
    program = torch.export.export(Pool(), inputs)
    assert any("sumpool.sum_pool" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*inputs), Pool()(*inputs))


def test_demanding_fused_says_why_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    features, prototypes = random_features(2, n=9, m=4, d=16, dtype=torch.float32)
    double = features.double().to(DEVICE)
    features, prototypes = features.to(DEVICE), prototypes.to(DEVICE)
    with pytest.raises(ValueError, match=r"is not possible: features are torch\.float64"):
        sum_pool(double, prototypes, 0.3, 5.0, fused=True)
    with pytest.raises(ValueError, match=r"the solver is .*not exact"):
        sum_pool(features, prototypes, 0.3, 5.0, solver=Iterative(5), fused=True)
    with pytest.raises(ValueError, match="mu has 2 values, not one"):
        sum_pool(features, prototypes, torch.tensor([0.2, 0.3]), 5.0, fused=True)
    with pytest.raises(ValueError, match="there are 300 prototypes, more than 256"):
        sum_pool(features, prototypes[:1].expand(300, -1), 0.3, 5.0, fused=True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="features are on cpu, not on a CUDA device"):
        sum_pool(features.cpu(), prototypes.cpu(), 0.3, 5.0, fused=True)


def test_fused_is_the_default_on_gpus_only_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, prototypes = random_features(2, n=9, m=4, d=16, dtype=torch.float32)
    features, prototypes = features.to(DEVICE).requires_grad_(), prototypes.to(DEVICE)
    assert fused_support(features, prototypes, 0.3, 5.0) is None

    def takes_fused(**kwargs: Any) -> bool:
        return "SumPool" in str(sum_pool(features, prototypes, 0.3, 5.0, **kwargs)[0].grad_fn)

    assert takes_fused() == (DEVICE == "cuda")
    assert not takes_fused(fused=False)
    assert takes_fused(fused=True)
    monkeypatch.setenv(FUSED_VARIABLE, "0")
    assert not takes_fused()


# Torch calls the mode that finds waiting a prototype feature.
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA graphs need a CUDA device")
def test_forward_and_backward_are_captured_in_a_cuda_graph_without_waiting() -> None:
    arguments, wanted = pose(Case(n=100, tensors=True), torch.float32)

    def step() -> tuple[Tensor, ...]:
        out = sum_pool(**arguments, fused=True)
        return torch.autograd.grad(
            out.embedding.square().sum() + out.weights.square().sum(), wanted
        )

    right = [g.clone() for g in step()]
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
