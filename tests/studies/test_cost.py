"""The cost study: what is measured, and the laws that hold whatever the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sumpool.studies.cost import experiment as cost
from sumpool.studies.cost.experiment import Contender, CostSettings
from sumpool.system.rows import Row

TINY = CostSettings("cpu", "CPU", 1, "saved", **cost.QUICK)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        folder = tmp_path_factory.mktemp("cost")
        return folder, cost.run(folder, quick=True, progress=False)


def metric(rows: list[Row], solver: str, name: str) -> list[float]:
    return [row.metrics[name] for row in rows if row.cell["solver"] == solver]


def test_every_contender_has_a_row(quick: tuple[Path, list[Row]]) -> None:
    _, rows = quick
    assert [(row.cell["solver"], row.cell["k"]) for row in rows] == [
        ("exact", None),
        *((solver, k) for solver in ("autodiff", "iterative") for k in (1, 5, 25)),
    ]
    assert {row.cell["size"] for row in rows} == {"4×4"}
    for row in rows:
        assert 0 < row.metrics["step_ms_low"] <= row.metrics["step_ms"]
        assert row.metrics["step_ms"] <= row.metrics["step_ms_high"]
        assert row.metrics["ratio_to_exact"] > 0
    assert metric(rows, "exact", "ratio_to_exact") == [1.0]


def test_only_autodiff_keeps_more_with_more_iterations(quick: tuple[Path, list[Row]]) -> None:
    _, rows = quick
    first, second, third = metric(rows, "autodiff", "memory_bytes")
    assert first < second < third
    assert len(set(metric(rows, "iterative", "memory_bytes"))) == 1
    assert metric(rows, "exact", "memory_bytes")[0] < second


def test_iterations_come_to_the_exact_weights(quick: tuple[Path, list[Row]]) -> None:
    _, rows = quick
    errors = metric(rows, "iterative", "weight_error")
    assert errors == metric(rows, "autodiff", "weight_error")
    assert errors[0] > errors[1] > errors[2]
    assert metric(rows, "exact", "weight_error")[0] < 1e-6


def test_error_is_that_of_a_solution_computed_anew() -> None:
    maps = cost.draw_maps(TINY, 4, seed=0)
    layers = [it.build(TINY) for it in (Contender("exact"), Contender("iterative", 5))]
    for layer in layers:
        layer.initialize_prototypes(maps)
    exact, iterated = (layer.double().pool(maps.double()).weights for layer in layers)
    assert exact is not None
    assert iterated is not None
    total = 0.0
    for one, other in zip(iterated.flatten().tolist(), exact.flatten().tolist(), strict=True):
        total += abs(one - other) / 2
    found = cost.measure(TINY, 4, seed=0)[Contender("iterative", 5)]["weight_error"]
    assert found == pytest.approx(total / len(maps), rel=1e-3)


def test_a_size_is_measured_whole_or_not_at_all(
    quick: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = quick
    calls = []
    measure = cost.measure

    def counted(settings: CostSettings, side: int, seed: int) -> object:
        calls.append((side, seed))
        return measure(settings, side, seed)

    monkeypatch.setattr(cost, "measure", counted)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cost.run(folder, quick=True, progress=False) == rows
    assert calls == []
    more = cost.run(folder, quick=True, seeds=2, progress=False)
    assert calls == [(4, 1)]
    assert more[: len(rows)] == rows
    assert len(more) == 2 * len(rows)


def test_cuda_is_measured_at_two_sizes_and_with_fused_kernels() -> None:
    settings = CostSettings("cuda", "GPU", 1, "peak", sides=(7, 16))
    names = [it.solver for it in cost.contenders(settings)]
    assert names[:2] == ["exact", "fused"]
    assert names.count("autodiff") == names.count("iterative") == 6
    assert Contender("fused").build(settings).fused is True
    assert Contender("exact").build(settings).fused is False
