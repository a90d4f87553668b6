"""Files of weights are read without executing anything."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sumpool.models import ModelError
from sumpool.models.weights import read_state


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("writer", ["torch", "torch, old format", "pickle"])
def test_a_crafted_pickle_does_not_run(tmp_path: Path, writer: str) -> None:
    path, target = tmp_path / "weights.pth", tmp_path / "sprung"
    trap = {"weight": Trap(target)}
    if writer == "pickle":
        path.write_bytes(pickle.dumps(trap))
    else:
        torch.save(trap, path, _use_new_zipfile_serialization=writer == "torch")
    with pytest.raises(ModelError, match=r"weights\.pth cannot be read as a torch file of weights"):
        read_state(path)
    assert not target.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights", bytes(range(256)) * 8])
def test_a_file_of_something_else_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"weights\{suffix} (cannot be read|is not a whole)"):
        read_state(path)


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"weight": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ModelError, match=r"weights\.pth cannot be read"):
        read_state(path)


def test_a_checkpoint_of_more_than_weights_says_what_is_in_it(tmp_path: Path) -> None:
    torch.save({"state_dict": {"w": torch.zeros(1)}, "epoch": 3}, tmp_path / "weights.pth")
    with pytest.raises(ModelError, match="other things under state_dict, epoch"):
        read_state(tmp_path / "weights.pth")
    torch.save([torch.zeros(1)], tmp_path / "weights.pth")
    with pytest.raises(ModelError, match="holds a list, not tensors by name"):
        read_state(tmp_path / "weights.pth")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_values_that_are_not_finite_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    state = {"a": torch.ones(2), "b": torch.tensor([1e5]).half(), "n": torch.tensor(3)}
    (torch.save if suffix == ".pth" else save_file)(state, path)
    with pytest.raises(ModelError, match=r"values that are not finite, .*, under b$"):
        read_state(path)
