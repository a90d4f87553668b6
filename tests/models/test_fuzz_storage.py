"""The two files of a model, nearly right: the same model, or an error of one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import damaged, is_read_or_refused
from sumpool.models import EmbedderConfig, build_embedder, load_embedder, save_embedder
from sumpool.models.storage import DESCRIPTION, TENSORS

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz")
    save_embedder(build_embedder(EmbedderConfig("small_cnn", "none", 8)), path)
    return path


@pytest.mark.parametrize("name", [DESCRIPTION, TENSORS])
@settings(max_examples=20)
@given(data=st.data())
def test_a_model_is_the_same_or_refused(name: str, folder: Path, data: st.DataObject) -> None:
    sound = (folder / name).read_bytes()
    expected = load_embedder(folder).state_dict()

    def load() -> None:
        found = load_embedder(folder).state_dict()
        assert all(torch.equal(found[key], value) for key, value in expected.items())

    try:
        (folder / name).write_bytes(data.draw(damaged(sound)))
        assert is_read_or_refused(load)
    finally:
        (folder / name).write_bytes(sound)
