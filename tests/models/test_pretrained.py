"""The packaged network embeds images without any training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import sumpool
from models.tiny import images, pictures
from sumpool.models import ModelError, save_embedder


@pytest.mark.process
def test_pretrained_is_the_mean_of_the_last_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = sumpool.load("pretrained")
    assert not model.training
    x = images(model, 1)
    with torch.no_grad():
        mean = model.backbone(x).mean((2, 3))
        torch.testing.assert_close(model(x), F.normalize(mean))
    save_embedder(model, tmp_path / "kept")
    again, picture = sumpool.load("kept"), pictures((50, 40))
    assert torch.equal(again.embed(picture), model.embed(picture))


def test_a_folder_called_pretrained_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pretrained").mkdir()
    with pytest.raises(ModelError, match="pretrained holds neither a run nor a model"):
        sumpool.load("pretrained")
