"""Configurations and checkpoints, nearly right: a value, or an error of one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import damaged, is_read_or_refused
from sumpool.training.checkpoint import Checkpoints
from sumpool.training.config import TrainConfig, read_config, write_config

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    write_config(TrainConfig(data="photos"), folder / "config.yaml")
    Checkpoints(folder / "checkpoints").save(1, {"step": 1, "weights": torch.arange(9.0)})
    return folder


@settings(max_examples=30)
@given(data=st.data())
def test_a_configuration_is_read_or_refused(home: Path, data: st.DataObject) -> None:
    path = home / "damaged.yaml"
    path.write_bytes(data.draw(damaged((home / "config.yaml").read_bytes())))
    assert is_read_or_refused(lambda: read_config(path))


@settings(max_examples=30)
@given(data=st.data())
def test_a_checkpoint_is_sound_or_refused(home: Path, data: st.DataObject) -> None:
    (sound,) = (home / "checkpoints").glob("*.ckpt")
    path = home / "damaged" / sound.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data.draw(damaged(sound.read_bytes())))

    def load() -> None:
        state = Checkpoints(path.parent).load()
        assert state is not None
        assert state["step"] == 1
        assert torch.equal(state["weights"], torch.arange(9.0))

    assert is_read_or_refused(load)
