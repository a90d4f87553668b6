"""Random numbers by address: a draw depends on its place, not on earlier draws.

A training step needs random classes, images and crops. Each is read from an endless table given
by the seed, at a place given by the step, with a counter-based generator [philox]. A run that
resumes at step t draws what it would have drawn, with any number of workers and processes, and the
global random states of torch and NumPy are not touched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: The tables: order of the classes in a pass, images of a class in a step, views of a step, what
#: collages are made of, the backgrounds of photographs with clutter, and what is erased of views.
CLASSES, IMAGES, VIEWS, COLLAGES, CLUTTER, ERASING = 0, 1, 2, 3, 4, 5

#: Numbers of one block of the generator: a place in a table is a number of blocks.
BLOCK = 4


def uniforms(seed: int, table: int, row: int, count: int, skip: int = 0) -> NDArray[np.float64]:
    """``count`` numbers, uniform in [0, 1), from a row of a table.

    Args:
        seed: Seed of the tables, 0 ≤ seed < 2⁶⁴.
        table: Such as ``VIEWS``.
        row: Such as the step, 0 ≤ row < 2⁶⁴.
        count: How many numbers.
        skip: Blocks of the row (4 numbers each) before them.

    Example:
        >>> whole = uniforms(seed=7, table=VIEWS, row=100, count=12)
        >>> bool((uniforms(seed=7, table=VIEWS, row=100, count=8, skip=1) == whole[4:]).all())
        True
    """
    generator = np.random.Philox(key=check_seed(seed) | (table << 64), counter=(row << 64) + skip)
    # The upper 53 bits as a double: exact, and the same with every version of NumPy.
    return (generator.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def check_seed(seed: int) -> int:
    """``seed``, or an error that says what a seed is."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {seed!r}")
    return seed
