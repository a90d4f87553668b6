"""On a GPU: the same draws as on the CPU, and new ones in every replay of a graph."""

from __future__ import annotations

import pytest
import torch

from centers.naive_centers import random_centers
from sumpool.centers import REGULARIZERS, build_regularizer, greedy_k_center, mean_covering_radius

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", REGULARIZERS)
def test_values_and_draws_are_those_of_the_cpu(name: str) -> None:
    centers = random_centers(500, 2, 16)
    cpu, gpu = (build_regularizer(name, subset=64, seed=2).to(it) for it in ("cpu", "cuda"))
    for _ in range(3):
        assert torch.allclose(cpu(centers), gpu(centers.cuda()).cpu())


@pytest.mark.parametrize("name", REGULARIZERS)
def test_a_replayed_step_draws_anew(name: str) -> None:
    plain, recorded = (build_regularizer(name, subset=64).cuda() for _ in range(2))
    # All on one stream: a gradient is brought to the stream on which its leaf was made, and the
    # default stream cannot wait for one that is being recorded.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        centers = random_centers(500, 16).float().cuda().requires_grad_()
        expected = []
        for _ in range(5):
            value = plain(centers)
            expected.append((value.item(), torch.autograd.grad(value, centers)[0]))
        for _ in range(2):
            torch.autograd.grad(recorded(centers), centers)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        value = recorded(centers)
        (gradient,) = torch.autograd.grad(value, centers)
    for number, wanted in expected[2:]:
        graph.replay()
        assert value.item() == pytest.approx(number, rel=1e-5)
        assert torch.allclose(gradient, wanted, rtol=1e-3, atol=1e-6)


def test_covers_are_those_of_the_cpu() -> None:
    points = random_centers(50, 12, 8)
    mask = torch.rand(50, 12, generator=torch.Generator().manual_seed(0)) < 0.8
    mask[:, :4] = True
    chosen = random_centers(50, 3, 8, seed=1)
    picks = greedy_k_center(points, 4, chosen, mask)
    there = greedy_k_center(points.cuda(), 4, chosen.cuda(), mask.cuda())
    assert torch.equal(picks, there.cpu())
    here = mean_covering_radius(points, mask)
    assert torch.allclose(here, mean_covering_radius(points.cuda(), mask.cuda()).cpu())
