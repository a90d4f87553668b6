"""On a CUDA device metrics and neighbors are those of the CPU."""

from __future__ import annotations

import pytest
import torch

from evaluation.ranking_oracle import CASES, WAYS, solved, way
from sumpool.evaluation import nearest_neighbors, retrieval_metrics

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", WAYS)
def test_metrics_are_those_of_the_cpu(how: str, name: str) -> None:
    case, order = solved(name)
    tensors = (case.query, case.query_labels, case.gallery, case.gallery_labels)
    moved = (None if x is None else x.cuda() for x in tensors)
    with way(how) as options:
        found = retrieval_metrics(*moved, ks=case.ks, **options)
    assert found == pytest.approx(case.truth(order), abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_neighbors_are_those_of_the_cpu_to_the_last_bit(name: str) -> None:
    case, order = solved(name)
    own = case.gallery is None
    k = min(17, len(order[0]))
    expected, _ = nearest_neighbors(case.query, case.gallery, k, exclude_self=own)
    gallery = None if case.gallery is None else case.gallery.cuda()
    similarities, indices = nearest_neighbors(case.query.cuda(), gallery, k, exclude_self=own)
    assert indices.device.type == similarities.device.type == "cuda"
    assert torch.equal(similarities.cpu(), expected)
    assert indices.tolist() == [items[:k] for items in order]


def test_tf32_is_not_used_and_stays_allowed() -> None:
    points = torch.nn.functional.normalize(torch.randn(5000, 512), dim=1)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        _, found = nearest_neighbors(points.cuda(), None, 10, exclude_self=True)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    _, expected = nearest_neighbors(points, None, 10, exclude_self=True)
    assert torch.equal(found.cpu(), expected)
