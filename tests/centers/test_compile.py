"""Means and regularizers under torch.compile: one graph, the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from centers.naive_centers import random_centers
from sumpool.centers import build_regularizer, log_exp_mean, power_mean, skewed_mean

pytestmark = pytest.mark.process


def test_means_compile_into_one_graph() -> None:
    def means(x: Tensor, mask: Tensor) -> Tensor:
        return log_exp_mean(x, 3.0, mask=mask) + power_mean(x, -3.0) + skewed_mean(x, 2)

    compiled = torch.compile(means, backend="eager", fullgraph=True)
    x, mask = random_centers(3, 5).exp(), torch.ones(3, 5, dtype=torch.bool)
    assert torch.allclose(compiled(x, mask), means(x, mask))


def test_a_compiled_regularizer_keeps_drawing() -> None:
    regularizer = build_regularizer("r2-far", subset=8)
    compiled = torch.compile(build_regularizer("r2-far", subset=8), backend="eager", fullgraph=True)
    centers = random_centers(20, 4)
    found = []
    for _ in range(3):
        found.append(float(compiled(centers)))
        assert torch.allclose(torch.tensor(found[-1]).double(), regularizer(centers))
    assert len(set(found)) == 3
