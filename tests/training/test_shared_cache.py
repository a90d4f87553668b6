"""Decoded images that runs share change what a run costs, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sumpool.training import HardwareConfig, StopConfig, TrainConfig, run_training

#: Two steps of a small network.
CONFIG = TrainConfig(
    format="glyphs",
    backbone="small_cnn",
    pool="gap",
    embedding_size=8,
    batch_size=4,
    images_per_class=2,
    stop=StopConfig(validate_every=2, max_steps=2),
    hardware=HardwareConfig(accelerator="cpu", workers=0),
    resize=24,
    crop=24,
    exhibits=False,
)


def test_test_images_are_kept_where_runs_share_them_and_judged_alike(tmp_path: Path) -> None:
    images = tmp_path / "images"
    shared = replace(CONFIG, cache="ram", cache_dir=str(images))
    alone = replace(CONFIG, cache="ram")
    one, two = (
        run_training(replace(config, out=str(tmp_path / name)), progress=False)
        for name, config in (("shared", shared), ("alone", alone))
    )
    assert len(list(images.glob("*.pixels"))) == 3  # training, validation, test
    assert one.metrics == two.metrics
