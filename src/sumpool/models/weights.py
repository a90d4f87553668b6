"""Reading files of weights, and loading them into networks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import torch
from torch import Tensor, nn

from sumpool.models.errors import ModelError

#: Metadata key for the digest of the tensors in a safetensors file.
DIGEST = "tensors_sha256"
#: Maximum number of names listed in a message.
_SPELLED = 5


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file (by its suffix) or a torch file.

    No pickle is executed: torch files are read with ``weights_only=True``.

    Raises:
        ModelError: If the file is missing, or contains anything but finite tensors by name.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file of weights")
    if path.suffix == ".safetensors":
        return _finite(path, read_safetensors(path)[0])
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged or foreign files can raise anything
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
    """Read the tensors by name and the metadata of a safetensors file.

    Raises:
        ModelError: If the file cannot be read, or its tensors do not match its digest. Files
            without a digest, from earlier versions or other programs, are accepted.
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
    """Return the SHA-256 of names, dtypes, shapes and values of CPU tensors, in any order."""
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
    """Copy ``state`` into ``network``, which it must match completely.

    Unless ``exact``, quirks of old files are accepted: batch normalization without
    ``num_batches_tracked``, and with vectors of shape (1, C).

    Args:
        network: Its parameters and buffers are set in place.
        state: Tensors by name.
        source: Origin of the tensors, for error messages.
        classifier: Names of modules whose tensors in ``state`` are ignored.
        exact: Whether ``state`` must match ``network.state_dict()`` including dtypes.

    Raises:
        ModelError: If a tensor is missing, unknown or of the wrong shape or, if ``exact``, dtype.
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
