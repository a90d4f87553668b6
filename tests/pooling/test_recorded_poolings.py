"""On a GPU: every pooling can be recorded as a CUDA graph, and gives what it gives unrecorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.pooling import POOLINGS, build_pooling, pooling_class

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch's remarks on streams while it records.
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning"),
]


def step(pool: nn.Module, x: Tensor) -> list[Tensor]:
    """The embedding and its gradients to the input and every parameter."""
    out = pool(x)
    inputs = [x, *pool.parameters()]
    found = torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)
    return [out.detach(), *(it for it in found if it is not None)]


#: Settings of GSP that other operations run for than by default.
LEVERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gsp", {"cost": "cosine"}),
    ("gsp", {"cost": "norm", "share": "image", "learn_mix": True, "learn_eps": True}),
    ("gsp", {"mix": 0.5}),
    ("gsp-parts", {"with_sum": True, "share": "image"}),
)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in POOLINGS), *LEVERS])
def test_a_pooling_is_recorded(name: str, options: dict[str, Any]) -> None:
    size = 16 if pooling_class(name).linear_map == "inside" else None
    torch.manual_seed(0)
    pool = build_pooling(name, 16, embedding_size=size, **options).cuda().train()
    x = torch.rand(8, 16, 6, 6, device="cuda")
    if hasattr(pool, "initialize_prototypes"):
        pool.initialize_prototypes(x)
    x.requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(pool, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        recorded = step(pool, x)
    with torch.no_grad():
        x.copy_(torch.rand_like(x))
    graph.replay()
    for got, wanted in zip(recorded, step(pool, x), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
