"""A model is loaded by its own folder or by that of its run."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import sumpool
from models.tiny import embedder, images
from sumpool.models import ModelError, save_embedder


def test_a_run_and_its_model_load_alike(tmp_path: Path) -> None:
    model = embedder().eval()
    save_embedder(model, tmp_path / "run" / "model")
    (tmp_path / "run" / "run.json").write_text("{}")
    for folder in (tmp_path / "run", str(tmp_path / "run" / "model")):
        assert torch.equal(sumpool.load(folder)(images(model)), model(images(model)))


def test_what_holds_no_model_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no folder .*missing: name that of a run"):
        sumpool.load(tmp_path / "missing")
    with pytest.raises(ModelError, match="holds neither a run nor a model"):
        sumpool.load(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no model yet.*sumpool train --resume"):
        sumpool.load(tmp_path)


@pytest.mark.process
def test_the_module_is_the_command() -> None:
    asked = [sys.executable, "-m", "sumpool", "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["sumpool", version("sumpool")]
