"""Initial parameters of losses, determined by a seed alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from sumpool.transport.validation import check_seed

#: Kinds of parameters; each has its own stream of random numbers.
PROXIES, CLASS_EMBEDDINGS, GRAPH, CENTERS = 0, 1, 2, 3


def initial_vectors(count: int, size: int, *, seed: int, kind: int) -> Tensor:
    """Draw ``count`` normal vectors with variance 2 / count, shape (count, size).

    This is He's initialization as the authors of [gsp] apply it to proxies and to class embeddings.
    The global random states of torch and NumPy do not change.

    Args:
        count: Number of vectors.
        size: Length of each vector.
        seed: An integer of at least 0.
        kind: Kind of the parameters, such as ``PROXIES``.
    """
    generator = torch.Generator("cpu").manual_seed(_state(seed, kind))
    return torch.randn(count, size, generator=generator, device="cpu") * math.sqrt(2 / count)


@contextmanager
def drawing(seed: int, kind: int) -> Iterator[None]:
    """Context in which torch draws on the CPU from ``seed`` and ``kind``; restores its state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_state(seed, kind))
        yield


def _state(seed: int, kind: int) -> int:
    return int(np.random.SeedSequence([check_seed(seed), kind]).generate_state(1, np.uint64)[0])
