"""New proxies for a problem: embeddings of images, far from the previous proxies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sumpool.transport import greedy_k_center


class Pool(NamedTuple):
    """Candidate images for the proxies of each class.

    Attributes:
        indices: Indices of the images, (C, b) int64.
        mask: True for valid candidates, (C, b); classes with fewer images have fewer.
    """

    indices: Tensor
    mask: Tensor


def draw_pool(
    classes: Tensor, num_classes: int, size: int, least: int, *, seed: int | Sequence[int]
) -> Pool:
    """Draw ``size`` images of each class at random, without repetition if there are enough.

    Classes with fewer than ``size`` images use all of them, repeated if necessary to reach
    ``least`` candidates.

    Args:
        classes: The class 0..C − 1 of each image, (N,).
        num_classes: Number of classes C.
        size: Images b per class in the pool.
        least: Minimum number of candidates per class, at most ``size``.
        seed: One or several integers, which alone determine the draw.

    Raises:
        ValueError: If a class has no images or is out of range, or ``least`` is not in 1..``size``.

    Example:
        >>> draw_pool(torch.tensor([0, 0, 0, 1]), 2, size=2, least=1, seed=0).mask
        tensor([[ True,  True],
                [ True, False]])
    """
    if not 1 <= least <= size:
        raise ValueError(f"least must lie between 1 and size = {size}, got {least}")
    drawn = np.random.default_rng(seed).permutation(len(classes))
    labels = classes.cpu().numpy()[drawn]
    # A stable sort preserves the random order within each class.
    order = drawn[np.argsort(labels, kind="stable")]
    counts = np.bincount(labels, minlength=num_classes)
    if len(counts) > num_classes or counts.min() < 1:
        raise ValueError(
            f"classes must have every number in 0..{num_classes - 1} at least once, and no other"
        )
    first = np.cumsum(counts) - counts
    places = np.arange(size)
    # The modulus repeats the images of classes with fewer than ``size``.
    indices = order[first[:, None] + places % counts[:, None]]
    mask = places < np.maximum(counts, least)[:, None]
    return Pool(torch.from_numpy(indices), torch.from_numpy(mask))


def redraw_proxies(proxies: Tensor, pool: Tensor, mask: Tensor | None = None) -> Tensor:
    """Pick new proxies from ``pool`` by greedy k-center in each class [thesis, alg. 2].

    The previous proxies count as chosen: each pick is the embedding of the pool that is farthest
    from them and from the earlier picks. If the pool is as large as the number of proxies, all of
    it is picked, so that proxies are drawn at random.

    Args:
        proxies: Converged proxies ρ, (C, P, D).
        pool: Embeddings of images of each class, (C, b, D).
        mask: True for valid candidates, (C, b); at least P in each class.

    Returns:
        New proxies, (C, P, D): rows of the pool.
    """
    picks = greedy_k_center(pool, proxies.shape[1], chosen=proxies, mask=mask)
    return pool.gather(1, picks.unsqueeze(-1).expand(*picks.shape, pool.shape[-1]))
