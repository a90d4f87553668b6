"""Decoded images that runs share change what a run costs, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sumpool.training import StopConfig, run_training
from training.test_selection import CONFIG, draw


@pytest.mark.process
def test_shared_caches_hold_test_images_and_change_no_metric(tmp_path: Path) -> None:
    for part, classes in (("train", range(4)), ("test", range(4, 7))):
        list(draw(tmp_path / "photos" / part, classes))
    images, stop = tmp_path / "images", StopConfig(validate_every=2, max_steps=2)
    alone = replace(
        CONFIG, data=str(tmp_path / "photos"), cache="ram", resize=20, crop=20, stop=stop
    )
    shared = replace(alone, cache_dir=str(images))
    one, two = (
        run_training(replace(config, out=str(tmp_path / name)), progress=False)
        for name, config in (("shared", shared), ("alone", alone))
    )
    assert len(list(images.glob("*.pixels"))) == 3  # training, validation, test
    assert one.metrics == two.metrics
