"""On a CUDA device combinations have the metrics of the CPU."""

from __future__ import annotations

import pytest
import torch

from evaluation.test_concatenated import GROUPS, WORLDS
from sumpool.evaluation.concatenated import metrics
from sumpool.evaluation.concatenated.metrics import concatenated_metrics

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("searched", [9, 128])
@pytest.mark.parametrize("name", WORLDS)
def test_combinations_are_those_of_the_cpu(
    name: str, searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_SEARCHED", searched)
    world, labels = WORLDS[name](80), torch.arange(80) % 7
    found = concatenated_metrics([it.cuda() for it in world], labels.cuda(), groups=GROUPS)
    expected = concatenated_metrics(world, labels, groups=GROUPS)
    for metric, values in expected.items():
        assert found[metric].tolist() == pytest.approx(values.tolist(), abs=1e-12)
