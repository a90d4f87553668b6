"""The studies of chance-constrained proxies: their cells, and that each runs on its stand-in."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.protocols import PROTOCOLS
from sumpool.studies.ccp_geometry import experiment as ccp_geometry
from sumpool.studies.ccp_search import experiment as ccp_search
from sumpool.studies.ccp_search.trials import Trial
from sumpool.studies.ccp_settings import experiment as ccp_settings
from sumpool.studies.cells import CellResult
from sumpool.studies.grids import ccp_batch, ccp_pool, ccp_problems
from sumpool.studies.shared import ccp as ccp_testbed
from sumpool.studies.shared import testbed
from sumpool.studies.shared.ccp_labels import METHODS
from sumpool.system.rows import ResultStore, Row, read_arrays
from sumpool.training import ConfigError, HardwareConfig, TrainConfig, resolve


@pytest.fixture
def glyphs(tmp_path: Path) -> testbed.Testbed:
    found = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    return ccp_testbed.with_many_validations(found, False)


def test_methods_differ_in_proxies_and_in_problems() -> None:
    config = TrainConfig(pool="gap")
    base, alone, alternating = (ccp_testbed.with_method(config, method) for method in METHODS)
    assert base == config
    assert alone.ccp.enabled
    assert alternating.ccp.enabled
    assert (alone.ccp.problems, alternating.ccp.problems) == (1, None)
    assert replace(alone, ccp=alternating.ccp) == alternating
    with pytest.raises(ValueError, match=r"method must be one of base, .*, got 'none'"):
        ccp_testbed.with_method(config, "none")


def test_collages_are_validated_often_and_cub_as_in_the_protocol(glyphs: testbed.Testbed) -> None:
    assert (glyphs.config.stop.validate_every, glyphs.config.stop.max_steps) == (20, 1000)
    assert glyphs.config.pool == "gap"
    cub = testbed.Testbed("CUB", TrainConfig(format="cub", fold=1), (1e-5,))
    config = ccp_testbed.with_method(
        ccp_testbed.with_many_validations(cub, False).config, "alternating"
    )
    found = resolve(config, "cub")
    assert (found.stop.validate_every, found.stop.patience) == (25, 60)
    assert (found.ccp.proxies, found.ccp.candidates, found.ccp.patience) == (8, 12, 3)


def test_ablations_on_cub_are_the_protocol_of_the_thesis(tmp_path: Path) -> None:
    cub = testbed.Testbed("CUB", TrainConfig(format="cub", fold=1), (1e-5,))
    found = ccp_testbed.prepare_tuned(cub, tmp_path, False)
    for method in METHODS:
        config = resolve(ccp_testbed.with_method(found.config, method), "cub")
        assert (config.fold, config.folds, config.zero_shot.weight) == (1, 3, 0)
        assert PROTOCOLS["tuning-ccp"].departures(config, "cub") == {}
    assert found.evaluated_on == PROTOCOLS["tuning-ccp"].evaluated_on


def test_every_level_is_a_sound_configuration(glyphs: testbed.Testbed) -> None:
    cell = {"loss": "ms", "seed": 3}
    config = ccp_testbed.cell_config(glyphs, cell)
    assert (config.loss, config.seed, config.hardware.cuda_step) == ("ms", 3, False)
    for study in (ccp_pool, ccp_problems, ccp_batch, ccp_settings):
        for level in study.LEVELS:
            resolve(study.change(config, level), "glyphs")
    assert len(ccp_pool.LEVELS) == 12
    few = ccp_batch.change(replace(config, format="cifar-collage"), ccp_batch.LEVELS[-1])
    assert (few.batch_size, few.images_per_class) == (128, 8)  # there are 16 classes
    many = ccp_batch.change(config, ccp_batch.LEVELS[-1])
    assert (many.batch_size, many.images_per_class) == (128, 4)


@pytest.mark.parametrize("study_of", ["collages", "CUB"])
def test_settings_change_what_they_name(glyphs: testbed.Testbed, study_of: str) -> None:
    cub = testbed.Testbed("CUB", TrainConfig(format="cub", fold=1, pool="gap"), (1e-5,))
    ground = cub if study_of == "CUB" else glyphs
    cell = {"loss": "c2", "seed": 0}
    found = {
        level["variant"]: resolve(
            ccp_settings.change(ccp_testbed.cell_config(ground, cell), level), ground.config.format
        )
        for level in ccp_settings.levels_of(ground, False)
    }
    base, thesis = found["base"], found["thesis"]
    assert not base.ccp.enabled
    assert thesis.ccp.problems is None
    ccp, optimizer = thesis.ccp, thesis.optimizer
    assert ccp.candidates != ccp.proxies
    for name, changed in {
        "one problem": replace(thesis, ccp=replace(ccp, problems=1)),
        "random proxies": replace(thesis, ccp=replace(ccp, candidates=ccp.proxies)),
        "no pull": replace(thesis, ccp=replace(ccp, pull=0.0)),
        "patience 10": replace(thesis, ccp=replace(ccp, patience=10)),
        "batch weight 0.1": replace(thesis, ccp=replace(ccp, batch_weight=0.1)),
        "proxies x10": replace(thesis, optimizer=replace(optimizer, proxy_lr_multiplier=10.0)),
        "proxies x100": replace(thesis, optimizer=replace(optimizer, proxy_lr_multiplier=100.0)),
        "last weights": replace(thesis, ccp=replace(ccp, solution="last")),
        "last weights, patience 10": replace(
            thesis, ccp=replace(ccp, solution="last", patience=10)
        ),
        "unit vectors": replace(thesis, normalize="l2"),
        "unit vectors, patience 10": replace(thesis, normalize="l2", ccp=replace(ccp, patience=10)),
        "unit vectors, last weights": replace(
            thesis, normalize="l2", ccp=replace(ccp, solution="last")
        ),
        "unit vectors, last weights, batch weight 0.1": replace(
            thesis, normalize="l2", ccp=replace(ccp, solution="last", batch_weight=0.1)
        ),
    }.items():
        assert found[name] == changed
    # Collages are validated equally often with both.
    many = found.get(ccp_settings.MANY_VALIDATIONS)
    assert len(found) == (15 if many is None else 16)
    if study_of == "CUB":
        assert many == replace(base, stop=thesis.stop)
        assert (many.stop.validate_every, many.stop.patience) == (25, 60)
    else:
        assert many is None
        assert base.stop == thesis.stop


def test_steps_are_recorded_as_far_as_the_loss_allows() -> None:
    on_cuda = HardwareConfig(compile=True, cuda_step=True)
    ground = testbed.Testbed("CUB", TrainConfig(format="cub", hardware=on_cuda), (1e-5,))
    for loss, whole in (("c2", True), ("ms", False), ("triplet", False)):
        found = ccp_testbed.cell_config(ground, {"loss": loss, "seed": 0}).hardware
        assert (found.compile, found.cuda_step, found.cuda_graph) == (True, whole, not whole)
    for hardware in (HardwareConfig(), HardwareConfig(cuda_graph=True)):
        assert testbed.with_loss(TrainConfig(hardware=hardware), "ms", 0).hardware == hardware


def test_problems_are_measured_at_the_first_and_the_last() -> None:
    columns = ("spread", "covering_radius", "travel", "violation_rate", "violation_bound", "norm")
    steps = {"first_step": 40.0, "best_step": 45.0, "last_step": 60.0}
    solved = [
        dict.fromkeys(columns, 1.0 / it) | {name: step * it for name, step in steps.items()}
        for it in (1, 2, 4)
    ]
    found = ccp_testbed.problem_metrics(solved)
    assert found["problems"] == 3
    assert (found["spread_first"], found["spread_last"]) == (1.0, 0.25)
    assert (found["travel_first"], found["travel_last"]) == (1.0, 0.25)
    assert found["violation_rate"] == found["norm"] == 0.25
    assert found["kept"] == 0.25
    assert ccp_testbed.problem_metrics(solved, "last")["kept"] == 1.0
    assert ccp_testbed.problem_metrics([]) == {}
    assert ccp_testbed.problem_steps(solved).tolist() == [20, 40, 80]


def test_geometry_is_that_of_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(17, 3, generator=generator)
    labels = torch.tensor([4] * 5 + [1] * 5 + [7] * 7)
    found = ccp_geometry.geometry(vectors, labels)
    apart = [
        float((vectors[a] - vectors[b]).norm())
        for a in range(17)
        for b in range(17)
        if labels[a] != labels[b]
    ]
    assert found["class_distance"] == pytest.approx(np.mean(apart), rel=1e-5)
    radii = []
    for label in (4, 1, 7):
        own = vectors[labels == label]
        chosen, sizes = [0], []
        while True:
            nearest = torch.cdist(own, own[chosen]).amin(1)
            sizes.append(float(nearest.max()))
            if len(chosen) == len(own):
                break
            chosen.append(int(nearest.argmax()))
        radii.append(np.mean(sizes))
    assert found["mean_covering_radius"] == pytest.approx(np.mean(radii), abs=1e-3)
    assert found["relative_radius"] == pytest.approx(
        found["mean_covering_radius"] / found["class_distance"]
    )


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A search whose runs are a formula; what was trained."""
    trained: list[dict[str, Any]] = []

    def train(change: object, ground: object, cell: dict[str, Any]) -> CellResult:
        trained.append(cell)
        height = -abs(np.log10(cell["pull"]) + 3) / 10 + 0.01 * cell["proxies"]
        score = float(0.5 + height + 0.001 * cell["seed"])
        return CellResult({"map_at_r": score, "validation_map_at_r": score, "problems": 3.0})

    monkeypatch.setattr(ccp_search, "train_level", train)
    monkeypatch.setattr(
        ccp_search,
        "open_testbed",
        lambda *_, **__: testbed.Testbed("stand-in", TrainConfig(), (1e-3,)),
    )
    monkeypatch.setattr(ccp_search, "TRIALS", 7)
    monkeypatch.setattr(ccp_search, "START", 4)
    return trained


@pytest.mark.process
def test_an_interrupted_search_resumes_bit_for_bit(
    search: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ccp_search.run(tmp_path / "whole", progress=False)
    assert len(whole) == len(search) == 7
    assert ccp_search.run(tmp_path / "whole", progress=False) == whole
    assert len(search) == 7
    add = ResultStore.add

    def interrupted(store: ResultStore, *arguments: Any) -> Any:
        if len(search) == 13:
            raise KeyboardInterrupt
        return add(store, *arguments)

    monkeypatch.setattr(ResultStore, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ccp_search.run(tmp_path / "again", progress=False)
    monkeypatch.setattr(ResultStore, "add", add)
    again = ccp_search.run(tmp_path / "again", progress=False)
    assert [row.cell for row in again] == [row.cell for row in whole]


def test_points_are_trained_with_every_seed(search: list[dict[str, Any]], tmp_path: Path) -> None:
    rows = ccp_search.run(tmp_path, progress=False)
    ccp_search.run(tmp_path, seeds=2, progress=False)  # the second seed of the same points
    assert len(search) == 14
    assert {(it["trial"], it["seed"]) for it in search} == {
        (trial, seed) for trial in range(7) for seed in range(2)
    }
    points = {(row.cell["trial"], row.cell["pull"], row.cell["proxies"]) for row in rows}
    assert points == {(it["trial"], it["pull"], it["proxies"]) for it in search}


def test_several_points_are_asked_at_once() -> None:
    done = [
        Trial(
            it,
            **ccp_search.spread_point(it),
            rows=[Row("", {}, {}, {"validation_map_at_r": 0.1 * (it % 3)}, {}, 0.0, None)],
        )
        for it in range(5)
    ]
    spread = [{"trial": it, **ccp_search.spread_point(it)} for it in range(5)]
    assert ccp_search.ask(done[:3], 4, start=5) == spread[3:]
    # A point that was interrupted while a later one was finished is asked for again.
    assert ccp_search.ask([done[0], done[2]], 4, start=5) == [spread[it] for it in (1, 3, 4)]
    asked = ccp_search.ask(done, 2, start=5)
    assert [it["trial"] for it in asked] == [5, 6]
    assert (asked[0]["pull"], asked[0]["proxies"]) != (asked[1]["pull"], asked[1]["proxies"])
    for point in asked:
        assert ccp_search.PULLS[0] <= point["pull"] <= ccp_search.PULLS[1]
        assert point["proxies"] in range(1, 13)


def test_without_optuna_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"needs Optuna, .* install sumpool\[tune\]"):
        ccp_search.run(tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
@pytest.mark.parametrize(
    "study", [ccp_problems, ccp_pool, ccp_batch, ccp_settings, ccp_geometry, ccp_search]
)
def test_every_study_runs_on_its_stand_in(tmp_path: Path, study: Any) -> None:
    rows = study.run(tmp_path, quick=True, jobs=1, progress=False)
    assert rows[0].settings["data"] == "stand-in"
    assert all(0 <= row.metrics["map_at_r"] <= 1 for row in rows)
    last = rows[-1]
    if study is not ccp_batch:
        assert last.metrics["problems"] >= 1
    if study is ccp_problems:
        steps = read_arrays(tmp_path, last)["problem_steps"]
        assert len(steps) == last.metrics["problems"]
        assert steps.sum() == 4
    again = study.run(tmp_path, quick=True, jobs=1, progress=False)
    assert [row.duration_s for row in again] == [row.duration_s for row in rows]
