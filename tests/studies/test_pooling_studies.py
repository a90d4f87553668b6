"""The studies of poolings: their cells, their designs, and that each runs on its stand-in."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data import miniatures
from sumpool.data import GlyphCollages, write_cifar_stand_in
from sumpool.models import ModelError
from sumpool.models.backbones import build_backbone
from sumpool.pooling import POOLINGS
from sumpool.protocols import PROTOCOLS
from sumpool.studies.collage import experiment as collage
from sumpool.studies.collage import paper
from sumpool.studies.grids import components, levels, prototypes, screening, share, sizes
from sumpool.studies.shared import testbed
from sumpool.studies.shared.measuring import foreground_tiles, measure, tile_shares
from sumpool.studies.zero_shot_loss import experiment as zero_shot_loss
from sumpool.system.files import StoreError
from sumpool.system.rows import read_arrays
from sumpool.training import resolve
from sumpool.training.config import ConfigError


def test_half_of_a_factorial_keeps_main_effects_apart() -> None:
    cells = screening.half_factorial(screening.FACTORS)
    assert len(cells) == 8
    levels = np.array(
        [
            [2 * (cell[name] == high) - 1 for name, (_, high) in screening.FACTORS.items()]
            for cell in cells
        ]
    )
    assert (levels.sum(0) == 0).all()  # balanced
    for one, two in itertools.combinations(range(4), 2):
        assert levels[:, one] @ levels[:, two] == 0  # orthogonal
        for three in range(4):  # and no effect of two options is mixed up with a main one
            assert three in (one, two) or (levels[:, one] * levels[:, two]) @ levels[:, three] == 0
    assert (levels.prod(1) == 1).all()


def test_shares_of_tiles() -> None:
    weights = torch.zeros(1, 4, 6)
    weights[0, 0, 0], weights[0, 3, 5] = 1.0, 3.0
    assert tile_shares(weights).tolist() == [[0.25, 0, 0, 0.75]]
    with pytest.raises(ValueError, match="even height and width"):
        tile_shares(torch.ones(1, 3, 4))


def test_a_subset_keeps_the_foreground_tiles_of_its_collages() -> None:
    collages = GlyphCollages(split="validation", images_per_class=2)
    chosen = collages.subset([5, 3, 3, 20]).subset([3, 0])
    tiles = foreground_tiles(chosen)
    assert tiles is not None
    assert tiles.tolist() == collages.letter_tile[[20, 5]].tolist()
    letters = GlyphCollages(split="validation", images_per_class=2, part="letter")
    assert foreground_tiles(letters) is foreground_tiles(letters.subset([0])) is None


def test_variants_of_gsp_on_collages_differ_in_what_they_are_named_after(tmp_path: Path) -> None:
    ground = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    cell = {"loss": "c2", "lr": 6e-3, "seed": 0}
    plain, late, sharp, more, power, score = (
        collage.method_config(ground, {**cell, "method": method})
        for method in ("gsp", "gsp-late", "gsp-sharp", "gsp+zs", "gsp-power", "gsp-score")
    )
    assert late == replace(plain, gsp=replace(plain.gsp, average_steps=ground.late))
    assert sharp == replace(plain, gsp=replace(plain.gsp, mu=0.1, eps=30.0))
    assert more == replace(plain, zero_shot=testbed.ZERO_SHOT)
    assert power.pool == score.pool == "gsp-keys"
    assert power.gsp == replace(plain.gsp, prototypes=1, mu=0.3, eps=1.0)
    assert score.gsp == replace(plain.gsp, prototypes=1, mu=0.05, eps=1.0)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    with pytest.raises(ConfigError, match="data must be CIFAR-100 or CUB"):
        share.run(tmp_path / "out", data=tmp_path / "images", progress=False)


def test_without_data_it_is_glyphs_which_need_no_weights(tmp_path: Path) -> None:
    found = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    assert (found.name, found.rates) == ("glyphs", (6e-3,))
    with pytest.raises(ConfigError, match="weights must be left out on glyphs"):
        testbed.open_testbed(tmp_path, None, quick=False, weights=tmp_path, progress=False)


def test_rows_of_other_weights_are_not_mixed_in_or_lost(tmp_path: Path) -> None:
    out, run = tmp_path / "out", partial(share.run, quick=True, progress=False, seeds=1)
    weights = [tmp_path / folder / "backbone.safetensors" for folder in "ab"]
    for seed, path in enumerate(weights):
        path.parent.mkdir()
        torch.manual_seed(seed)
        state = build_backbone("small_cnn").network.state_dict()
        save_file({name: value.contiguous() for name, value in state.items()}, path)
    rows = run(out, weights=weights[0])
    assert rows[0].settings["weights"].startswith("backbone.safetensors ")
    with pytest.raises(StoreError, match="weights was backbone"):
        run(out, weights=weights[1])
    for wrong in (tmp_path / "nope", tmp_path):
        with pytest.raises(ModelError, match="there is no such file of weights"):
            run(out, weights=wrong, force=True)
    assert run(out, weights=weights[0]) == rows


def test_on_cub_all_is_as_in_the_fair_protocol(tmp_path: Path) -> None:
    root = miniatures.cub(tmp_path / "cub")
    found = testbed.open_testbed(tmp_path, root, quick=False, weights=None, progress=False)
    assert found.name == "CUB"
    assert found.config.hardware == testbed.hardware()
    for loss, eps in (("c2", 5.0), ("pnca", 0.5)):
        level = share.change(replace(found.config, loss=loss, pool="gsp"), {"mu": 0.5})
        config = resolve(level, "cub")
        assert (config.optimizer.lr, config.batch_size, config.fold) == (1e-5, 32, 1)
        assert (config.gsp.prototypes, config.gsp.mu, config.gsp.eps) == (64, 0.5, eps)
        assert (config.stop.validate_every, config.stop.patience) == (100, 15)
    with pytest.raises(ConfigError, match=r"data must be CIFAR-100, but .* holds CUB"):
        collage.run(tmp_path, data=root, progress=False)


def test_ablations_on_cub_are_the_tuning_protocol_at_the_zero_shot_loss_of_the_figures(
    tmp_path: Path,
) -> None:
    root = miniatures.cub(tmp_path / "cub")
    fair = testbed.open_testbed(tmp_path, root, quick=False, weights=None, progress=False)
    found = levels.as_tuned(fair, tmp_path, False)
    protocol = PROTOCOLS["tuning"]
    for level in (
        share.change(found.config, {"mu": 0.5}),
        prototypes.change(found.config, {"prototypes": 16, "eps": 2.0}),
        components.change(found.config, {"gsp": True, "zero_shot": True}),
    ):
        config = resolve(level, "cub")
        assert (config.fold, config.folds, config.zero_shot.weight) == (1, 5, 0.1)
        assert protocol.departures(config, "cub") == {}
    alone = components.change(found.config, {"gsp": True, "zero_shot": False})
    assert alone.zero_shot.weight == 0
    assert found.settings()["evaluated_on"] == protocol.evaluated_on == "validation"
    assert "evaluated_on" not in fair.settings()
    glyphs = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    assert levels.as_tuned(glyphs, tmp_path, False) == glyphs


def test_scores_are_of_the_images_that_the_testbed_asks_for() -> None:
    parts = {
        name: {"mean_average_precision_at_r": value, "precision_at_1": value, "queries": 1.0}
        for name, value in (("test", 0.25), ("validation", 0.5))
    }
    outcome = SimpleNamespace(best_step=1, steps=2)
    query = SimpleNamespace(query=None)
    trained: Any = SimpleNamespace(
        metrics=parts, outcome=outcome, splits=SimpleNamespace(test=query)
    )
    assert measure(trained)["map_at_r"] == 0.25
    trained.splits.test = None
    del parts["test"]
    tuned = measure(trained, "validation")
    assert (tuned["map_at_r"], tuned["precision_at_1"]) == (0.5, 0.5)


def test_configurations_of_methods(tmp_path: Path) -> None:
    ground = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    for method in collage.METHODS:
        cell = {"method": method, "loss": "pnca", "lr": 0.5, "seed": 3}
        config = collage.method_config(ground, cell)
        assert (config.loss, config.seed, config.optimizer.lr) == ("pnca", 3, 0.5)
        assert config.pool in POOLINGS
        assert bool(config.zero_shot.weight) == (method == "gsp+zs")
    assert config.crop == 24  # distilled, the last, sees one tile
    level = {"gsp": False, "zero_shot": True}
    changed = components.change(ground.config, level)
    assert changed.gsp.mu == 1
    assert changed.zero_shot.weight
    assert share.change(ground.config, {"mu": 0.7}).gsp.mu == 0.7
    assert prototypes.change(ground.config, {"prototypes": 3, "eps": 2.0}).gsp.eps == 2


def test_zero_shot_variants_differ_from_none_and_from_each_other(tmp_path: Path) -> None:
    ground = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    made = [
        zero_shot_loss.variant_config(
            ground.config, {"variant": name, "loss": "c2", "lr": 0.1, "seed": 0}
        )
        for name in zero_shot_loss.VARIANTS
    ]
    for one, two in itertools.combinations(made, 2):
        assert one != two
    assert made[0] == replace(
        ground.config, pool="gsp", optimizer=replace(ground.config.optimizer, lr=0.1)
    )


@pytest.mark.process
def test_every_pooling_is_trained_and_looked_at(tmp_path: Path) -> None:
    rows = collage.run(tmp_path, quick=True, jobs=1, progress=False)
    assert [row.cell["method"] for row in rows] == list(collage.METHODS)
    by_method = {row.cell["method"]: row for row in rows}
    assert by_method["gap"].metrics["foreground_weight"] == pytest.approx(0.25, abs=1e-4)
    assert "foreground_weight" not in by_method["netvlad"].metrics
    assert "foreground_weight" not in by_method["distilled"].metrics
    arrays = read_arrays(tmp_path, by_method["gsp"])
    assert arrays["images"].shape == (8, 64, 64, 3)
    assert arrays["weights"].shape[0] == len(arrays["foreground_tile"]) == 8
    again = collage.run(tmp_path, quick=True, jobs=1, progress=False)
    assert [row.duration_s for row in again] == [row.duration_s for row in rows]


@pytest.mark.process
@pytest.mark.parametrize(
    "study", [components, share, prototypes, screening, sizes, paper, zero_shot_loss]
)
def test_every_study_runs_on_its_stand_in(tmp_path: Path, study: object) -> None:
    rows = study.run(tmp_path, quick=True, jobs=1, progress=False)  # type: ignore[attr-defined]
    assert rows
    assert all(0 <= row.metrics["map_at_r"] <= 1 for row in rows)
    assert rows[0].settings["data"] == "stand-in"


@pytest.mark.process
def test_a_cell_of_the_zero_shot_study_measures_how_the_losses_pull(tmp_path: Path) -> None:
    root = write_cifar_stand_in(tmp_path / "data", train_per_class=4, test_per_class=2)
    ground = testbed._collages("stand-in", root, tmp_path, quick=True, weights=None, progress=False)
    cell = {"variant": "λ .5", "loss": "c2", "lr": 3e-4, "seed": 0}
    metrics = zero_shot_loss.train_variant(ground, cell).metrics
    assert metrics["gradient_ratio"] > 10  # the papers' weight drowns the base loss at the start
    assert metrics["zero_shot_loss"] > 2 * np.log(16)  # worse than guessing
    assert 1 <= metrics["attribute_perplexity"] <= 128


def test_the_paper_variant_of_collages_has_a_schedule_that_can_act(tmp_path: Path) -> None:
    ground = testbed.open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    found = paper.as_published(ground, tmp_path, False)
    for method in paper.METHODS:
        cell = {"method": method, "loss": "c2", "lr": found.rates[0], "seed": 0}
        config = paper.paper_config(found, cell)
        assert config.optimizer.warmup_epochs == 0
        assert config.zero_shot.weight == (0.5 if method == "gsp+zs" else 0)
        plateau, stop = config.optimizer.plateau_patience, config.stop
        limits = (plateau, stop.patience, (stop.max_steps or 0) // (stop.validate_every or 1))
        assert limits == (5, 15, 80)


def test_sizes_differ_in_length_and_regularizer_alone(tmp_path: Path) -> None:
    cub = testbed.Testbed("CUB", replace(testbed.GLYPHS, format="cub", data="x"), (1e-5,))
    found = sizes.as_published(cub, tmp_path, False)
    assert {level["embedding_size"] for level in sizes.LEVELS} == {32, 64, 128, 256, 512, 1024}
    for level in sizes.LEVELS:
        config = sizes.change(found.config, level)
        assert (config.optimizer.name, config.optimizer.lr, config.crop) == ("adamw", 1e-4, 224)
        assert config.center_reg == (None if level["regularizer"] == "none" else "r2-far")
        assert config.embedding_size == level["embedding_size"]
    assert sizes.as_published(found, tmp_path, True).config.stop == found.config.stop
