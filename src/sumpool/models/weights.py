"""Weights of backbones: from files, and from packages that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sumpool.models.errors import ModelError

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
        try:
            return load_file(path)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ModelError(f"{path} is not a whole safetensors file: {error}") from error
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
    return {str(key): value for key, value in state.items()}


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
