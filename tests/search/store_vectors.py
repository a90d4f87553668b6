"""Vectors for the tests of vector indexes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unit(seed: int, n: int, d: int) -> NDArray[np.float32]:
    """``n`` random vectors of norm 1."""
    vectors = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
