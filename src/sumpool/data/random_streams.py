"""Random numbers by address: a draw depends on its position, not on earlier draws.

A training step needs random classes, images and crops. Each is read from an infinite table given
by the seed, at a position given by the step, with a counter-based generator [philox]. A run that
resumes at step t makes the same draws as an uninterrupted one, for any number of workers and
processes. The global random states of torch and NumPy are not modified.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sumpool.transport.validation import check_seed

#: The tables: order of the classes in a pass, images of a class in a step, views of a step,
#: composition of collages, backgrounds of cluttered photographs, and erased regions of views.
CLASSES, IMAGES, VIEWS, COLLAGES, CLUTTER, ERASING = 0, 1, 2, 3, 4, 5

#: Numbers in one block of the generator; positions in a row are counted in blocks.
BLOCK = 4


def uniforms(seed: int, table: int, row: int, count: int, skip: int = 0) -> NDArray[np.float64]:
    """Read ``count`` numbers, uniform in [0, 1), from a row of a table.

    Args:
        seed: Seed of the tables, 0 ≤ seed < 2⁶⁴.
        table: Such as ``VIEWS``.
        row: For example the step, 0 ≤ row < 2⁶⁴.
        count: Number of values.
        skip: Number of blocks (4 numbers each) to skip at the start of the row.

    Example:
        >>> whole = uniforms(seed=7, table=VIEWS, row=100, count=12)
        >>> bool((uniforms(seed=7, table=VIEWS, row=100, count=8, skip=1) == whole[4:]).all())
        True
    """
    generator = np.random.Philox(key=check_seed(seed) | (table << 64), counter=(row << 64) + skip)
    # The upper 53 bits as a double: exact, and identical in every version of NumPy.
    return (generator.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
