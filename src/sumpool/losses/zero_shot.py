"""The cross-batch zero-shot loss L_ZS: attributes predict classes excluded from the fit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.losses.batch_checks import check_counts, check_labels, check_rows
from sumpool.losses.initial import CLASS_EMBEDDINGS, initial_vectors
from sumpool.transport.validation import (
    check_label_range,
    check_one_of,
    check_positive,
    recording,
    solve_dtype,
)

#: The forms of a ridge fit, all equivalent.
FORMS = ("auto", "attributes", "images")
#: The orders in which classes are assigned alternately to the halves of a batch.
HALVES = ("appearance", "label")
#: The reductions of the losses of the two halves.
HALF_REDUCTIONS = ("sum", "mean")


def class_halves(labels: Tensor, by: str = "appearance") -> Tensor:
    """Split the batch into halves without a common class: False is the first, True the second.

    The classes of the batch are assigned to the halves alternately, so that their numbers of
    classes differ by at most one.

    Args:
        labels: Integers of shape (b,).
        by: Order of the classes: "appearance" of their first images in the batch, or "label".
            Batches of all classes in random order are always split in the same way by label, and in
            varying ways by appearance.

    Example:
        >>> class_halves(torch.tensor([7, 3, 3, 9, 7, 11]))
        tensor([False,  True,  True, False, False,  True])
        >>> class_halves(torch.tensor([7, 3, 3, 9, 7, 11]), by="label")
        tensor([ True, False, False, False,  True,  True])
    """
    check_one_of(HALVES, by=by)
    # Unlike unique(), this does not synchronize with the device.
    place = torch.arange(len(labels), device=labels.device)
    same = labels[:, None] == labels  # (b, b)
    begin = torch.where(same, place, len(labels)).amin(1)  # first position of the class
    order = begin if by == "appearance" else labels
    rank = ((order < order[:, None]) & (begin == place)).sum(1)  # classes before this one
    return rank % 2 == 1


def ridge_fit(inputs: Tensor, targets: Tensor, ridge: float, form: str = "auto") -> Tensor:
    r"""Minimize :math:`\lVert Z W - Y \rVert^2 + r \lVert W \rVert^2` over linear maps W.

    .. math:: W = (Z^\top Z + r I_m)^{-1} Z^\top Y = Z^\top (Z Z^\top + r I_b)^{-1} Y

    by a Cholesky solve; differentiable in Z and Y.

    Args:
        inputs: Z of shape (b, m).
        targets: Y of shape (b, D).
        ridge: r > 0.
        form: "attributes" solves the system of size m (left), "images" that of size b (right),
            "auto" the smaller one.

    Returns:
        W of shape (m, D), the transpose of the papers' A.
    """
    count, size = inputs.shape
    check_one_of(FORMS, form=form)
    if form == "auto":
        form = "attributes" if size <= count else "images"
    gram = inputs.mT @ inputs if form == "attributes" else inputs @ inputs.mT
    eye = torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    # Positive definite due to the ridge. Non-finite inputs give NaN, which propagates to the loss.
    factor, _ = torch.linalg.cholesky_ex(gram + ridge * eye)
    if form == "attributes":
        return torch.cholesky_solve(inputs.mT @ targets, factor)
    return inputs.mT @ torch.cholesky_solve(targets, factor)


def standardized(attributes: Tensor) -> Tensor:
    """Center attributes (b, m) and scale them to a root mean square norm of 1.

    Attributes are nonnegative and sum to 1, so their mean dominates: the differences between images
    are small relative to a ridge of 0.05 and have little effect on the fit.

    Example:
        >>> standardized(torch.tensor([[0.9, 0.1], [0.7, 0.3]]))
        tensor([[ 0.7071, -0.7071],
                [-0.7071,  0.7071]])
    """
    attributes = attributes.to(solve_dtype(attributes))
    centered = attributes - attributes.mean(0)
    length = centered.square().sum(1).mean().clamp_min(1e-12).sqrt()
    return centered / length


def zero_shot_loss(
    attributes: Tensor,
    labels: Tensor,
    class_embeddings: Tensor,
    ridge: float = 0.05,
    scale: float = 9.5,
    halves: str = "appearance",
    reduction: str = "mean",
) -> Tensor:
    r"""The cross-batch zero-shot loss L_ZS [gsp, Eq. 4.4].

    The batch is split into two halves without a common class (:func:`class_halves`). A linear map A
    from attributes to class embeddings is fitted on one half and predicts the other,

    .. math::
        A_b = \Upsilon_b (Z_b^\top Z_b + r I)^{-1} Z_b^\top, \qquad \hat\upsilon_i = A_b z_i,

    and the loss of a half is the mean over its images of the cross-entropy of
    softmax(scale · Υᵀυ̂) over all C classes. The losses of the halves are averaged or added.
    Gradients flow through the fit and the targets. Computed in float32, or in float64 if an
    argument is float64, also under autocast.

    Args:
        attributes: Pseudo-attributes z, (b, m).
        labels: Integers in 0..C − 1 of shape (b,), of at least two classes.
        class_embeddings: Υ as rows, (C, D); not normalized.
        ridge: r > 0.
        scale: Factor on the logits.
        halves: Order of the classes in the split, see :func:`class_halves`.
        reduction: "mean" of the two halves, as in the authors' practice, or their "sum", as in the
            papers, with scale 1.

    Returns:
        A scalar.

    Raises:
        ValueError: If the batch has fewer than two classes or a label is out of range.

    Example:
        >>> attributes = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
        >>> zero_shot_loss(attributes, torch.tensor([0, 1, 2, 3]), attributes)
        tensor(0.7...)
    """
    check_rows("attributes", attributes)
    check_rows("class_embeddings", class_embeddings)
    labels = check_labels(labels, "labels", attributes.shape[0]).to(attributes.device)
    check_label_range(labels, class_embeddings.shape[0])
    check_positive(ridge=ridge, scale=scale)
    check_one_of(HALF_REDUCTIONS, reduction=reduction)
    second = class_halves(labels, halves)
    if not recording() and not bool(second.any()):
        raise ValueError(
            "the zero-shot loss needs images of at least two classes in a batch, got "
            f"{len(labels)} of class {int(labels[0])}"
        )
    dtype = solve_dtype(attributes, class_embeddings)
    with torch.autocast(attributes.device.type, enabled=False):
        Z, classes = attributes.to(dtype), class_embeddings.to(dtype)
        targets = classes[labels]  # (b, D)
        losses = []
        for predicted in (second, ~second):
            # Zero rows do not affect the fit, so shapes do not depend on the labels.
            fitted = (~predicted).to(dtype).unsqueeze(1)
            W = ridge_fit(fitted * Z, fitted * targets, ridge)  # (m, D)
            logits = scale * (Z @ W) @ classes.mT  # (b, C)
            terms = F.cross_entropy(logits, labels, reduction="none")
            losses.append(torch.where(predicted, terms, 0).sum() / predicted.sum())
        total = losses[0] + losses[1]
        return total if reduction == "sum" else total / 2


class ZeroShotLoss(nn.Module):
    """The zero-shot loss with learned class embeddings Υ [gsp, Sec. 4.3].

    Class embeddings are initialized as normal vectors of variance 2 / C and are not normalized.
    They use the learning rate of the network, as in the authors' practice, and so are not proxies.

    Args:
        num_classes: Number of training classes C.
        embedding_size: Length D of a class embedding; in the papers that of the image embeddings.
        ridge: Ridge r > 0 of the fit.
        scale: Factor on the logits.
        unit: Whether to ℓ2-normalize class embeddings; not done in the papers.
        standardize: Whether to standardize attributes before the fit (:func:`standardized`); not
            done in the papers.
        halves: Order of the classes in the split, see :func:`class_halves`.
        reduction: "mean" or "sum" of the two halves.
        seed: Seed of the class embeddings; the global random state is not used.

    Example:
        >>> loss = ZeroShotLoss(num_classes=10, embedding_size=8)
        >>> attributes = torch.rand(6, 4).softmax(-1)
        >>> loss(attributes, torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int = 128,
        ridge: float = 0.05,
        scale: float = 9.5,
        seed: int = 0,
        *,
        unit: bool = False,
        standardize: bool = False,
        halves: str = "appearance",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_counts(num_classes=num_classes, embedding_size=embedding_size)
        check_positive(ridge=ridge, scale=scale)
        check_one_of(HALF_REDUCTIONS, reduction=reduction)
        check_one_of(HALVES, halves=halves)
        self.reduction = reduction
        self.ridge = ridge
        self.scale = scale
        self.unit = unit
        self.standardize = standardize
        self.halves = halves
        drawn = initial_vectors(num_classes, embedding_size, seed=seed, kind=CLASS_EMBEDDINGS)
        self.class_embeddings = nn.Parameter(drawn)

    def forward(self, attributes: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of pseudo-attributes (b, m) with labels (b,)."""
        classes: Tensor = self.class_embeddings
        if self.unit:
            classes = F.normalize(classes, dim=-1)
        if self.standardize:
            attributes = standardized(attributes)
        return zero_shot_loss(
            attributes, labels, classes, self.ridge, self.scale, self.halves, self.reduction
        )

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return an empty list: class embeddings use the learning rate of the network."""
        return []

    def extra_repr(self) -> str:
        """Return the sizes and settings for the module's repr."""
        classes, size = self.class_embeddings.shape
        return (
            f"{classes}, {size}, ridge={self.ridge}, scale={self.scale}, unit={self.unit}, "
            f"standardize={self.standardize}, halves={self.halves!r}, "
            f"reduction={self.reduction!r}"
        )
