"""Preparation of a run: what it announces, and that its feeds are closed however it ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.data import ImageFeed
from sumpool.training import HardwareConfig, RunError, run_training
from sumpool.training.prepare import build_feed, prepare
from sumpool.training.without_folder import train_in_memory
from training.test_selection import CONFIG, draw


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("prepare")
    for part, classes in (("train", range(8)), ("test", range(8, 13))):
        list(draw(root / part, classes))
    return root


def fail(*_: Any) -> Any:
    raise RunError("that was all")


@pytest.mark.parametrize("gpu", [False, True])
def test_a_missing_gpu_is_announced_only_if_it_is_missing(
    gpu: bool,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="sumpool")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    config = replace(
        CONFIG,
        data=str(photos),
        recipe="auto",
        freeze_backbone=True,
        cache_dir=str(tmp_path),
        hardware=HardwareConfig(workers=0),
    )
    prepare(config, progress=True)
    assert ("no GPU: recipe auto trains on features" in caplog.text) != gpu


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    ("patches", "count"),
    [
        ({}, 3),
        ({"prepare.Prepared.evaluate": fail}, 3),
        ({"loop.Trainer._step": fail}, 2),
        ({"interrupts.Interrupts.asked": lambda *_: True}, 2),
    ],
    ids=["finished", "evaluation fails", "step fails", "interrupted"],
)
def test_every_feed_is_closed_however_a_run_ends(
    in_memory: bool,
    patches: dict[str, Any],
    count: int,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[ImageFeed] = []
    closed: list[ImageFeed] = []

    def watched(*given: Any, **options: Any) -> ImageFeed:
        feed = build_feed(*given, **options)
        opened.append(feed)
        monkeypatch.setattr(feed, "close", lambda: closed.append(feed))
        return feed

    for name, patch in {"prepare.build_feed": watched, **patches}.items():
        monkeypatch.setattr(f"sumpool.training.{name}", patch)
    config = replace(CONFIG, data=str(photos), out=str(tmp_path / "run"))
    train: Any = train_in_memory if in_memory else partial(run_training, progress=False)
    with suppress(RunError, KeyboardInterrupt):
        train(config)
    assert len(opened) == count
    assert closed == opened
