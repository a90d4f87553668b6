"""Where proxies and class embeddings start: normal vectors that depend on a seed alone."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

#: What vectors are drawn for; each kind has random numbers of its own.
PROXIES, CLASS_EMBEDDINGS = 0, 1


def initial_vectors(count: int, size: int, *, seed: int, kind: int) -> Tensor:
    """``count`` vectors of normal numbers with variance 2 / count, as (count, size).

    This is He's initialization as the authors of [gsp] apply it to proxies and to class embeddings.
    The random states of torch and NumPy stay as they are.

    Args:
        count: How many vectors.
        size: Numbers of a vector.
        seed: An integer of at least 0.
        kind: ``PROXIES`` or ``CLASS_EMBEDDINGS``.
    """
    check_seed(seed)
    state = int(np.random.SeedSequence([seed, kind]).generate_state(1, np.uint64)[0])
    generator = torch.Generator("cpu").manual_seed(state)
    return torch.randn(count, size, generator=generator, device="cpu") * math.sqrt(2 / count)


def check_seed(seed: int) -> None:
    """Raise a ValueError unless ``seed`` is an integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
