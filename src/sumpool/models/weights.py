"""Weights of backbones: from files, and from packages that carry them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor, nn

from sumpool.models.errors import ModelError

#: Key of a safetensors file under which it has the digest of its tensors.
DIGEST = "tensors_sha256"
#: Most names that a message spells out.
_SPELLED = 5


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors by name in a safetensors file (by its suffix) or a torch file.

    No pickle is executed: torch files are read with ``weights_only=True``.

    Raises:
        ModelError: If there is no such file, or it is not one of named tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file of weights")
    if path.suffix == ".safetensors":
        return _finite(path, read_safetensors(path)[0])
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign file fails in any way
        reason = str(error).split("\n", 1)[0]
        raise ModelError(f"{path} cannot be read as a torch file of weights: {reason}") from error
    if not isinstance(state, Mapping):
        raise ModelError(f"{path} holds a {type(state).__name__}, not tensors by name")
    strange = [str(key) for key, value in state.items() if not isinstance(value, Tensor)]
    if strange:
        raise ModelError(
            f"{path} must hold tensors by name and nothing else, got other things under "
            f"{_spell(strange)}"
        )
    return _finite(path, {str(key): value for key, value in state.items()})


def _finite(path: Path, state: dict[str, Tensor]) -> dict[str, Tensor]:
    wrong = [name for name, it in state.items() if not it.isfinite().all()]
    if wrong:
        raise ModelError(
            f"{path} has values that are not finite, such as those that half precision cannot "
            f"hold, under {_spell(wrong)}"
        )
    return state


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name in a safetensors file, and what else it says.

    Raises:
        ModelError: If it cannot be read, or its tensors are not those that its digest is of. Files
            without a digest, of earlier versions or other programs, are taken as they are.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            names, metadata = file.keys(), file.metadata() or {}
            state = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is not a whole safetensors file: {error}") from error
    if DIGEST in metadata and metadata[DIGEST].split(" ")[0] != tensors_digest(state):
        raise ModelError(
            f"{path} is damaged: its tensors are not those that were saved; restore the file, or "
            "train again"
        )
    return state, metadata


def tensors_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values of CPU tensors, whatever their order."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_state(
    network: nn.Module,
    state: Mapping[str, Tensor],
    *,
    source: str,
    classifier: Iterable[str] = (),
    exact: bool = False,
) -> None:
    """Copy ``state`` into ``network``, all of it and nothing less.

    Unless ``exact``, peculiarities of old files are accepted: no count of the batches that batch
    normalization has seen, and its vectors as (1, C).

    Args:
        network: Its parameters and buffers are set in place.
        state: Tensors by name.
        source: Where they come from, for messages.
        classifier: Names of modules that may be in ``state`` and are left out.
        exact: Whether ``state`` must be just what ``network.state_dict()`` gives, dtypes included.

    Raises:
        ModelError: If a tensor is missing, unknown or of another shape.
    """
    dropped = tuple(f"{name}." for name in classifier)
    expected = network.state_dict()
    given = {name: value for name, value in state.items() if name in expected}
    if not exact:
        for name, value in given.items():
            if value.shape == (1, *expected[name].shape):
                given[name] = value[0]
        counts = [name for name in expected if name.endswith("num_batches_tracked")]
        given = {**{name: expected[name] for name in counts}, **given}
    missing = [name for name in expected if name not in given]
    unknown = [name for name in state if name not in expected and not name.startswith(dropped)]
    shapes = [
        f"{name} {tuple(value.shape)} in place of {tuple(expected[name].shape)}"
        for name, value in given.items()
        if value.shape != expected[name].shape
    ]
    kinds = [
        f"{name} {value.dtype} in place of {expected[name].dtype}"
        for name, value in given.items()
        if exact and value.dtype != expected[name].dtype
    ]
    parts = {
        "missing": missing,
        "unknown": unknown,
        "of another shape": shapes,
        "of another type": kinds,
    }
    defects = [f"{what}: {_spell(names)}" for what, names in parts.items() if names]
    if defects:
        raise ModelError(f"{source} does not fit {type(network).__name__}; {'; '.join(defects)}")
    network.load_state_dict(given)


def _spell(names: list[str]) -> str:
    more = len(names) - _SPELLED
    return ", ".join(names[:_SPELLED]) + (f" and {more} more" if more > 0 else "")
