"""The identity of a cell: what it computes, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from bench.bench_tasks import fake_cells
from sumpool.bench.cells import (
    FIRST_OPTIONS,
    BenchCell,
    identity_options,
    is_ignored,
    method_label,
)
from sumpool.bench.store.rows import BenchRow
from sumpool.protocols import Member
from sumpool.report.run.option_names import current_name
from sumpool.training.config import TrainConfig, flat, with_options
from sumpool.training.options import (
    CcpConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    ZeroShotConfig,
)
from sumpool.training.settings import resolve

STORED = Path(__file__).parents[2] / "docs" / "results" / "fair-cub-h200" / "rows.parquet"
CELL = BenchCell("fair", "cub", "gap", Member(2, 0), TrainConfig(pool="gap", fold=2))


#: Says the identity of CELL in a process whose strings hash in another way.
SAY_IDENTITY = """
from sumpool.bench.cells import BenchCell
from sumpool.protocols import Member
from sumpool.report.run.option_names import current_name
from sumpool.training.config import TrainConfig
print(BenchCell("fair", "cub", "gap", Member(2, 0), TrainConfig(pool="gap", fold=2)).id)
"""


@pytest.mark.process
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
        {"gallery": False},
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
    named = {name for name in flat(TrainConfig()) if is_ignored(name)}
    assert {name for name in named if not name.startswith("hardware.")} == {
        "data", "out", "cache", "cache_dir", "gallery", "checkpoint_seconds", "skip_broken",
        "allow_outside", "keep_checkpoints",
    }  # fmt: skip
    assert "hardware.precision" not in named


def test_stored_cells_keep_their_identity() -> None:
    rows = [BenchRow(**it) for it in read_table(STORED).to_pylist(maps_as_pydicts="strict")]
    assert len(rows) == 36
    for row in rows[::5]:
        config = with_options(TrainConfig(), row.options)
        member = Member(row.fold, row.seed)
        cell = BenchCell(row.protocol, row.data_set, row.method, member, config)
        assert cell.id == row.id
        assert method_label(config) == row.method
    first = {name for name in json.loads(rows[0].config) if not is_ignored(current_name(name))}
    assert first == FIRST_OPTIONS


def test_options_that_came_later_count_once_they_are_used() -> None:
    assert "chance.solution" not in FIRST_OPTIONS
    ccp = replace(CELL.config.ccp, solution="last")
    assert replace(CELL, config=replace(CELL.config, ccp=ccp)).id != CELL.id
    assert "chance.solution" not in identity_options(flat(CELL.config))


def test_cells_stored_when_best_was_the_default_solution_keep_their_identity() -> None:
    plain, last = CcpConfig(enabled=True, solution="best"), {"chance.solution": "last"}
    for ccp, part in ((plain, {}), (replace(plain, solution="last"), last), (CcpConfig(), {})):
        found = identity_options(flat(replace(CELL.config, ccp=ccp)))
        assert {it: found[it] for it in found if it == "chance.solution"} == part
    resolved = resolve(TrainConfig(ccp=CcpConfig(enabled=True)), "cub")
    assert identity_options(flat(resolved))["chance.solution"] == "last"


def test_cells_stored_when_halves_were_added_up_keep_their_identity() -> None:
    found = [
        identity_options(flat(resolve(TrainConfig(pool=pool, zero_shot=given), "cub")))
        for pool, given in (
            ("gap", ZeroShotConfig()),
            ("gsp", ZeroShotConfig(reduction="sum")),
            ("gsp", ZeroShotConfig()),
        )
    ]
    assert [it.get("zero_shot.reduction") for it in found] == [None, None, "mean"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("test", False),
        ("backbone_options", {"output_stride": 16}),
        ("crop_area", [0.16, 1.0]),
        ("train_crop", 64),
        ("map_init", "glorot"),
        ("erasing", 0.5),
        ("pool_defaults", "authors"),
        ("freeze_batch_norm_affine", True),
        ("freeze_backbone", True),
        ("frozen_views", 2),
        ("learned_blocks", 1),
        ("gsp.spread", 0.3),
        ("gsp.learn_eps", True),
        ("gsp.init", "image"),
        ("gsp.lr_multiplier", 2.0),
        ("gsp.cost", "cosine"),
        ("gsp.share", "image"),
        ("gsp.mix", 0.5),
        ("gsp.learn_mix", True),
        ("zero_shot.reduction", "mean"),
        ("optimizer.schedule", "cosine"),
        ("optimizer.ema", 0.9),
        ("stop.keep", "last"),
    ],
)
def test_a_later_option_is_part_of_the_identity_only_with_another_value(
    name: str, value: object
) -> None:
    plain = with_options(CELL.config, {name: flat(TrainConfig())[name]})
    assert name not in identity_options(flat(plain))
    changed = with_options(plain, {name: value})
    assert replace(CELL, config=changed).id != replace(CELL, config=plain).id


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
        (TrainConfig(pool="gap", ccp=CcpConfig(enabled=True)), "ccp+gap"),
        (
            TrainConfig(
                pool="gsp", ccp=CcpConfig(enabled=True), zero_shot=ZeroShotConfig(weight=0.1)
            ),
            "ccp+gsp+zs",
        ),
        (TrainConfig(pool="gap", loss="xbm"), "xbm+gap"),
        (TrainConfig(pool="gap", loss="xbm-c2"), "xbm+gap"),
        (TrainConfig(pool="gap", loss="pnca", center_reg="r1"), "gap+reg:r1"),
    ],
)
def test_labels_say_what_is_switched_on(config: TrainConfig, label: str) -> None:
    assert method_label(config) == label
