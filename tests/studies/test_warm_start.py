"""The start of runs on glyphs that begin from features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sumpool.studies.shared import warm_start as module
from sumpool.studies.shared.testbed import open_testbed, train_on
from sumpool.studies.shared.warm_start import FACTS, RATE, WEIGHTS, warm_start
from sumpool.system.documents import load_json
from sumpool.training import ConfigError, StopConfig


@pytest.mark.process
def test_a_start_is_trained_once_and_taken_by_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testbed = open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    short = replace(testbed.config, stop=StopConfig(validate_every=2, patience=9, max_steps=1))
    testbed = replace(testbed, config=short)
    begun = warm_start(testbed, tmp_path, quick=True)
    stored = load_file(tmp_path / "warm-start" / WEIGHTS)
    assert begun.config.weights == str(tmp_path / "warm-start" / WEIGHTS)
    assert begun.config.optimizer.lr == RATE
    # Frozen statistics, and weights that one step has hardly moved.
    still = replace(begun.config.optimizer, lr=1e-9, weight_decay=0.0)
    model = train_on(begun, replace(begun.config, pool="gap", optimizer=still)).model
    for name, value in model.backbone.state_dict().items():
        assert torch.allclose(value, stored[name], atol=1e-6), name

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "train_on", never)
    assert warm_start(testbed, tmp_path, quick=True) == begun
    with pytest.raises(ConfigError, match="holds a start with other settings: remove it"):
        warm_start(testbed, tmp_path, quick=False)


@pytest.mark.process
def test_a_start_on_foregrounds_sees_letters_alone(tmp_path: Path) -> None:
    testbed = open_testbed(tmp_path, None, quick=False, weights=None, progress=False)
    begun = warm_start(testbed, tmp_path, quick=True, foreground=True)
    assert load_json(tmp_path / "warm-start" / FACTS)["config"]["crop"] == 24
    assert begun.config.crop is None
