"""The identity of a cell: what it computes, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.bench_tasks import fake_cells
from sumpool.bench.cells import ADDED, BenchCell, group_of, method_label
from sumpool.protocols import Member
from sumpool.protocols.configuring import with_options
from sumpool.training.config import (
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ZeroShotConfig,
    flat,
)

CELL = BenchCell("fair", "cub", "gap", Member(2, 0), TrainConfig(pool="gap", fold=2))


#: Says the identity of CELL in a process whose strings hash in another way.
SAY_IDENTITY = """
from sumpool.bench.cells import BenchCell
from sumpool.protocols import Member
from sumpool.training.config import TrainConfig
print(BenchCell("fair", "cub", "gap", Member(2, 0), TrainConfig(pool="gap", fold=2)).id)
"""


def test_identity_is_the_same_in_every_process() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAY_IDENTITY],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == CELL.id
    assert len(CELL.id) == 16
    assert int(CELL.id, 16) >= 0


def test_labels_are_no_part_of_the_identity() -> None:
    assert CELL.id == replace(CELL, method="another label").id


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "/elsewhere"},
        {"out": "runs/x"},
        {"cache": "ram"},
        {"cache_dir": "/tmp"},
        {"exhibits": False},
        {"checkpoint_seconds": 1.0},
        {"skip_broken": True},
        {"hardware": HardwareConfig(accelerator="cpu", compile=True, workers=3, cuda_step=True)},
        {"optimizer": OptimizerConfig(embedding_lr_multiplier=1)},
    ],
)
def test_where_and_how_it_is_computed_is_no_part_of_the_identity(changes: dict) -> None:
    moved = replace(CELL, config=replace(CELL.config, **changes))
    assert moved.id == CELL.id
    assert moved.group == CELL.group


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware": HardwareConfig(precision="bf16-mixed")},
        {"stop": StopConfig(max_steps=4)},
        {"pool_options": {"p": 3.0}},
        {"backbone": "bn_inception"},
        {"embedding_size": 64},
        {"loss_options": {"margin": 0.1}},
    ],
)
def test_what_is_computed_decides_the_identity(changes: dict) -> None:
    other = replace(CELL, config=replace(CELL.config, **changes))
    assert other.id != CELL.id
    assert other.group != CELL.group


def test_every_other_option_decides_the_identity() -> None:
    from sumpool.bench.cells import decides

    named = {name for name in flat(TrainConfig()) if not decides(name)}
    assert {name for name in named if not name.startswith("hardware.")} == {
        "data",
        "out",
        "cache",
        "cache_dir",
        "exhibits",
        "checkpoint_seconds",
        "skip_broken",
    }
    assert "hardware.precision" not in named


def test_options_that_came_later_leave_stored_identities_alone() -> None:
    assert ADDED.items() <= flat(TrainConfig()).items()
    before = {name: value for name, value in flat(CELL.config).items() if name not in ADDED}
    assert group_of(CELL.protocol, CELL.data_set, before) == CELL.group
    for name in ADDED:
        changed = with_options(CELL.config, {name: "another"})
        assert replace(CELL, config=changed).id != CELL.id


def test_protocol_and_data_set_decide_the_identity() -> None:
    ids = {CELL.id, replace(CELL, protocol="tuning").id, replace(CELL, data_set="sop").id}
    assert len(ids) == 3


def test_members_of_a_group_differ_in_identity_alone() -> None:
    cells = fake_cells(3)
    assert len({cell.id for cell in cells}) == 3
    assert len({cell.group for cell in cells}) == 1


def test_a_cell_is_called_by_all_that_tells_it_from_others() -> None:
    assert CELL.name == "fair cub tf_efficientnet_lite0 c2 gap fold 2 seed 0"
    whole = replace(CELL, member=Member(None, 1))
    assert whole.name == "fair cub tf_efficientnet_lite0 c2 gap seed 1"


def test_the_loss_of_a_memory_is_the_one_it_works_for() -> None:
    losses = [replace(CELL, config=TrainConfig(loss=name)).loss for name in ("xbm", "xbm-c2", "ms")]
    assert losses == ["c1", "c2", "ms"]


@pytest.mark.parametrize(
    ("config", "label"),
    [
        (TrainConfig(pool="gap"), "gap"),
        (TrainConfig(pool="gsp", zero_shot=ZeroShotConfig(weight=0.1)), "gsp+zs"),
        (TrainConfig(pool="gsp", zero_shot=ZeroShotConfig(weight=0.0)), "gsp"),
        (TrainConfig(pool="gsp", zero_shot=ZeroShotConfig(balance=1.0)), "gsp+zs"),
        (TrainConfig(pool="gap", ccp=True), "ccp+gap"),
        (TrainConfig(pool="gsp", ccp=True, zero_shot=ZeroShotConfig(weight=0.1)), "ccp+gsp+zs"),
        (TrainConfig(pool="gap", loss="xbm"), "xbm+gap"),
        (TrainConfig(pool="gap", loss="xbm-c2"), "xbm+gap"),
        (TrainConfig(pool="gap", loss="pnca", center_reg="r1"), "gap+reg:r1"),
    ],
)
def test_labels_say_what_is_switched_on(config: TrainConfig, label: str) -> None:
    assert method_label(config) == label
