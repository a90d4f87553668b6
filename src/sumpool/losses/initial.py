"""Where what a loss learns starts: it depends on a seed alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

#: What numbers are drawn for; each kind has random numbers of its own.
PROXIES, CLASS_EMBEDDINGS, GRAPH, CENTERS = 0, 1, 2, 3


def initial_vectors(count: int, size: int, *, seed: int, kind: int) -> Tensor:
    """``count`` vectors of normal numbers with variance 2 / count, as (count, size).

    This is He's initialization as the authors of [gsp] apply it to proxies and to class embeddings.
    The random states of torch and NumPy stay as they are.

    Args:
        count: How many vectors.
        size: Numbers of a vector.
        seed: An integer of at least 0.
        kind: What they are for, such as ``PROXIES``.
    """
    generator = torch.Generator("cpu").manual_seed(_state(seed, kind))
    return torch.randn(count, size, generator=generator, device="cpu") * math.sqrt(2 / count)


@contextmanager
def drawing(seed: int, kind: int) -> Iterator[None]:
    """Context in which torch draws from ``seed`` and ``kind``; its own state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_state(seed, kind))
        yield


def _state(seed: int, kind: int) -> int:
    check_seed(seed)
    return int(np.random.SeedSequence([seed, kind]).generate_state(1, np.uint64)[0])


def check_seed(seed: int) -> None:
    """Raise a ValueError unless ``seed`` is an integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
