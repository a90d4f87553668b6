"""Validation and conversion of embeddings and labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.evaluation.comparison import Comparison
from sumpool.transport.validation import is_integer

#: A torch tensor or a numpy array.
ArrayLike: TypeAlias = Tensor | NDArray[Any]

#: Backends of the neighbor search; "auto" is "torch".
BACKENDS = ("auto", "torch", "faiss")
#: Default working memory in bytes.
MAX_MEMORY = 2**29

#: Bound on inputs, which keeps their squares well within the range of float64.
_LARGEST = 1e100


def as_vectors(name: str, vectors: ArrayLike, device: torch.device | None = None) -> Tensor:
    """Return ``vectors`` as finite float32 or float64 of shape (n, d), n and d at least 1."""
    out = _as_tensor(name, vectors, device)
    if not out.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, got {out.dtype}")
    if out.ndim != 2 or 0 in out.shape:
        raise ValueError(
            f"{name} must have shape (items, dimensions), neither 0, got {tuple(out.shape)}"
        )
    if out.dtype != torch.float64:
        out = out.float()  # half precision is exact in float32
    sound = (out.isfinite() & (out.abs() < _LARGEST)).all(1)
    if not bool(sound.all()):
        item = int((~sound).nonzero()[0])
        raise ValueError(f"{name} must be finite (and below 1e100), but item {item} is not")
    return out.contiguous()


def as_labels(name: str, labels: ArrayLike, items: int, device: torch.device) -> Tensor:
    """Return ``labels`` as int64 of shape (items,)."""
    out = _as_tensor(name, labels, device)
    if out.is_floating_point() or out.is_complex() or out.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {out.dtype}")
    if out.shape != (items,):
        raise ValueError(f"{name} must have shape ({items},), got {tuple(out.shape)}")
    return out.to(torch.int64).contiguous()


def as_comparison(query: ArrayLike, gallery: ArrayLike | None, own: bool) -> Comparison:
    """Check queries and gallery; None is the query set."""
    vectors = as_vectors("query", query)
    if gallery is None or gallery is query:
        return Comparison(vectors, vectors, own)
    others = as_vectors("gallery", gallery, vectors.device)
    if others.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"gallery must have the {vectors.shape[1]} dimensions of query, got {others.shape[1]}"
        )
    if own and len(others) != len(vectors):
        raise ValueError(
            "exclude_self needs a gallery that is the query set, item by item: "
            f"query has {len(vectors)} items, gallery {len(others)}"
        )
    return Comparison(vectors, others, own)


def check_search(backend: str, max_memory: int) -> None:
    """Raise unless ``backend`` is known and ``max_memory`` is a positive number of bytes."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if not is_integer(max_memory):
        raise TypeError(f"max_memory must be a number of bytes, got {type(max_memory).__name__}")
    if max_memory < 1:
        raise ValueError(f"max_memory must be at least 1 byte, got {max_memory}")


def check_ks(ks: Sequence[int], available: int) -> tuple[int, ...]:
    """Return ``ks`` as integers, each between 1 and ``available``."""
    if not isinstance(ks, Iterable):
        raise TypeError(f"ks must be a sequence of whole numbers, got {ks!r}")
    values = tuple(ks)
    for k in values:
        check_k("ks", k, available)
    return tuple(int(k) for k in values)


def check_k(name: str, k: Any, available: int) -> None:
    """Raise unless ``k`` is an integer between 1 and ``available``."""
    if not is_integer(k):
        raise TypeError(f"{name} must be whole numbers, got {k!r}")
    if not 1 <= k <= available:
        raise ValueError(
            f"{name} must lie between 1 and the {available} gallery items a query can retrieve, "
            f"got {k}"
        )


def _as_tensor(name: str, values: ArrayLike, device: torch.device | None) -> Tensor:
    if isinstance(values, np.ndarray):
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        with warnings.catch_warnings():
            # Mapped files are read-only, and nothing is written to them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            try:
                values = torch.from_numpy(np.ascontiguousarray(native))
            except TypeError as error:
                raise TypeError(f"{name} must hold numbers, got {values.dtype}") from error
    if not isinstance(values, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor or a numpy array, got {type(values).__name__}"
        )
    values = values.detach()
    return values if device is None else values.to(device)
