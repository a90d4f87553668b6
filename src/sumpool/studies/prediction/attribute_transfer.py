"""Transfer of attributes to other classes by a linear map.

Each class has a histogram of pseudo-attributes and a mean embedding. The classes are split into two
halves; a ridge regression from histograms to mean embeddings, fitted on one half, predicts the mean
embeddings of the other. A prediction is correct if the nearest true mean is that of its own class.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.losses import ridge_fit


class TransferAccuracy(NamedTuple):
    """Accuracy of retrieving the true mean of a class by the predicted mean, one value per split.

    Average precision is 1/rank, since only one true mean is correct.
    """

    l2: Tensor  #: Accuracy by Euclidean distance, (S,) float64
    cosine: Tensor  #: Accuracy by cosine similarity, (S,) float64
    map_l2: Tensor  #: Mean average precision by Euclidean distance, (S,) float64
    map_cosine: Tensor  #: Mean average precision by cosine similarity, (S,) float64


def class_means(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the class means (C, k), in float64, of values (N, k); every class needs an image.

    Example:
        >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
        tensor([[2.],
                [5.]], dtype=torch.float64)
    """
    counts = torch.bincount(labels, minlength=classes)
    if len(counts) != classes or not bool((counts > 0).all()):
        raise ValueError(
            f"labels must have every class of 0..{classes - 1}, got images of "
            f"{int((counts > 0).sum())} classes up to {len(counts) - 1}"
        )
    sums = values.new_zeros(classes, values.shape[1], dtype=torch.float64)
    return sums.index_add_(0, labels, values.double()) / counts[:, None]


def class_splits(classes: int, count: int, seed: int) -> Tensor:
    """Draw random orders (count, classes) of at least 4 classes, to fit on the first half of each.

    The orders depend only on ``seed``, not on the global random state.

    Example:
        >>> class_splits(4, 2, seed=0).sort(1).values
        tensor([[0, 1, 2, 3],
                [0, 1, 2, 3]])
    """
    if classes < 4:
        raise ValueError(f"classes must be at least 4, two to fit and two to tell, got {classes}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, classes, generator=generator, dtype=torch.float64).argsort(1)


def halves(classes: int) -> tuple[int, int]:
    """Return how many classes are fitted and how many predicted; an odd one is fitted.

    Example:
        >>> halves(20), halves(7)
        ((10, 10), (4, 3))
    """
    return classes - classes // 2, classes // 2


def transfer_accuracy(
    histograms: Tensor, means: Tensor, orders: Tensor, ridge: float = 0.05
) -> TransferAccuracy:
    r"""Fit on the first half of each order, predict the second, and measure the accuracy.

    With histograms Z (C, m) and mean embeddings Y (C, D) of the fitted classes,

    .. math:: W = (Z^\top Z + r I)^{-1} Z^\top Y, \qquad \hat y_c = W^\top z_c,

    and class c is correct if y_c is the nearest to ŷ_c among the classes of the predicted half.
    Chance is one over the size of that half. The rank of y_c gives the mean average precision
    reported in [gsp, app. 2.3]; ties count against it. ``orders`` (S, C) are those of
    :func:`class_splits`; all splits are solved together. The zero-shot loss uses the ridge 0.05.

    Example:
        >>> means = torch.eye(4)
        >>> transfer_accuracy(means + 1.0, means, class_splits(4, 3, seed=0)).l2.shape
        torch.Size([3])
    """
    classes = len(histograms)
    if len(means) != classes or orders.shape[1:] != (classes,):
        raise ValueError(
            f"means and orders must be of the {classes} classes of histograms, got shapes "
            f"{tuple(means.shape)} and {tuple(orders.shape)}"
        )
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    fitted, _ = halves(classes)
    known, asked = orders[:, :fitted], orders[:, fitted:]
    Z, Y = histograms.double(), means.double()
    W = torch.vmap(partial(ridge_fit, ridge=ridge))(Z[known], Y[known])  # (S, m, D)
    predicted, true = Z[asked] @ W, Y[asked]  # (S, h, D)
    products = predicted @ true.mT  # (S, predicted, true)
    # ‖ŷ − y‖² and cos(ŷ, y), up to terms and factors that do not depend on y.
    far = true.square().sum(-1).unsqueeze(-2) - 2 * products
    near = products / true.norm(dim=-1).clamp_min(1e-12).unsqueeze(-2)
    own = torch.arange(asked.shape[1])
    return TransferAccuracy(
        (far.argmin(-1) == own).double().mean(-1),
        (near.argmax(-1) == own).double().mean(-1),
        _mean_precision(far),
        _mean_precision(-near),
    )


def _mean_precision(far: Tensor) -> Tensor:
    # 1/rank of the true mean, on the diagonal of (S, predicted, true).
    own = far.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    return (far <= own).sum(-1).double().reciprocal().mean(-1)
