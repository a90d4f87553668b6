"""The study of center regularizers: its cells and that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sumpool.centers import REGULARIZERS
from sumpool.studies.centers import experiment as centers
from sumpool.training import HardwareConfig, TrainConfig


def test_every_regularizer_has_its_constants_and_weights() -> None:
    assert len(centers.LEVELS) == 1 + 2 * sum(len(it) for it in centers.CONSTANTS.values())
    for name, lams in centers.CONSTANTS.items():
        assert (REGULARIZERS[name].lam is None) == (lams == (None,))
    assert len({tuple(level.values()) for level in centers.LEVELS}) == len(centers.LEVELS)


def test_a_level_sets_the_regularizer() -> None:
    cell = {"regularizer": "r1", "lam": 8.0, "weight": 0.1, "loss": "pnca", "seed": 2}
    config = centers.change(TrainConfig(), cell)
    assert (config.center_reg, config.center.lam, config.center.weight) == ("r1", 8.0, 0.1)
    assert (config.loss, config.seed, config.pool) == ("pnca", 2, "gap")
    alone = centers.change(TrainConfig(), {**centers.NONE, "loss": "pnca", "seed": 0})
    assert alone.center_reg is None


def test_steps_are_recorded_as_far_as_the_loss_allows() -> None:
    config = TrainConfig(hardware=HardwareConfig(cuda_step=True))
    for loss, recorded in (("pnca", True), ("panchor", False)):
        cell = {**centers.NONE, "loss": loss, "seed": 0}
        found = centers.change(config, cell).hardware
        assert (found.cuda_step, found.cuda_graph) == (recorded, not recorded)


@pytest.mark.process
def test_the_quick_study_measures_retrieval_and_centers(tmp_path: Path) -> None:
    rows = centers.run(tmp_path, quick=True, progress=False)
    assert [row.cell["regularizer"] for row in rows] == ["none", "r1", "mhe"]
    for row in rows:
        for name in ("map_at_r", "precision_at_1", "validation_map_at_r", "mean_distance"):
            assert row.metrics[name] >= 0
        assert -1 <= row.metrics["mean_cosine"] <= row.metrics["nearest_cosine"] <= 1
        assert -8 <= row.metrics["uniformity"] <= 0
    assert centers.run(tmp_path, quick=True, progress=False) == rows
    # Only what the regularizer does tells the cells apart.
    assert rows[0].metrics["uniformity"] != pytest.approx(rows[2].metrics["uniformity"], abs=0)
