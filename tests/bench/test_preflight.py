"""Checks before the first run: what they say while they are made."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from sumpool.bench import preflight
from sumpool.bench.datasets import DataSource
from sumpool.bench.grid import Grid, GridError, expand
from sumpool.bench.preflight import check_cells
from sumpool.training.assemble import build_fabric, build_model

GLYPHS = DataSource("glyphs", "glyphs", None)


@pytest.mark.process
def test_nothing_is_said_of_each_method_while_a_grid_is_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"hardware.precision": "bf16-mixed", "hardware.accelerator": "cpu"}
    small: dict[str, Any] = {
        "backbones": ["small_cnn"],
        "poolings": ["gap", "gsp"],
        "options": options,
    }
    cells = expand(Grid("fair", [GLYPHS], **small, folds=[1], seeds=1))
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    for it in loggers:
        caplog.set_level(logging.INFO, logger=it.name)

    def said() -> list[str]:
        return [it.getMessage() for it in caplog.records if it.name.startswith("lightning")]

    check_cells(cells)
    assert said() == []
    with pytest.raises(GridError):
        check_cells(expand(Grid("fair", [GLYPHS], **{**small, "backbones": ["no_such_net"]})))
    assert said() == []
    # Runs still say it.
    assert {it.level for it in loggers} == {logging.INFO}
    build_fabric(cells[0].config)
    assert said() == ["Using bfloat16 Automatic Mixed Precision (AMP)"]


@pytest.mark.process
def test_grids_are_checked_with_one_thread_beside_other_runners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []

    def noted(config: Any) -> Any:
        threads.append(torch.get_num_threads())
        return build_model(config)

    monkeypatch.setattr(preflight, "build_model", noted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        options = {"hardware.accelerator": "cpu"}
        grid = Grid("fair", [GLYPHS], backbones=["small_cnn"], options=options, folds=[1], seeds=1)
        check_cells(expand(grid))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}
