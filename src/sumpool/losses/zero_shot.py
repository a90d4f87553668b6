"""The cross-batch zero-shot loss L_ZS: attributes must predict classes they were not fitted on."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.losses.checks import check_count, check_label_range, check_labels, check_rows
from sumpool.losses.initial import CLASS_EMBEDDINGS, initial_vectors
from sumpool.transport.checks import solve_dtype

#: The two equivalent forms of a ridge fit.
FORMS = ("auto", "attributes", "images")


def class_halves(labels: Tensor) -> Tensor:
    """Which half of the batch each image belongs to: False for the first, True for the second.

    The classes that occur, in the order of their labels, go to the two halves by turns. So the
    halves have no class in common, and as many classes but for one; and where an image stands in
    the batch makes no difference.

    Args:
        labels: Integers of shape (b,).

    Example:
        >>> class_halves(torch.tensor([7, 3, 3, 9, 7, 11]))
        tensor([ True, False, False, False,  True,  True])
    """
    rank: Tensor = labels.unique(return_inverse=True)[1]
    return rank % 2 == 1


def ridge_fit(inputs: Tensor, targets: Tensor, ridge: float, form: str = "auto") -> Tensor:
    r"""The linear map W that minimises :math:`\lVert Z W - Y \rVert^2 + r \lVert W \rVert^2`.

    .. math:: W = (Z^\top Z + r I_m)^{-1} Z^\top Y = Z^\top (Z Z^\top + r I_b)^{-1} Y

    by a Cholesky solve; gradients reach Z and Y.

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
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, got {form!r}")
    if form == "auto":
        form = "attributes" if size <= count else "images"
    gram = inputs.mT @ inputs if form == "attributes" else inputs @ inputs.mT
    eye = torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    # Positive definite by its ridge. Inputs that are not finite give NaN, which the loss shows.
    factor, _ = torch.linalg.cholesky_ex(gram + ridge * eye)
    if form == "attributes":
        return torch.cholesky_solve(inputs.mT @ targets, factor)
    return inputs.mT @ torch.cholesky_solve(targets, factor)


def zero_shot_loss(
    attributes: Tensor,
    labels: Tensor,
    class_embeddings: Tensor,
    ridge: float = 0.05,
    scale: float = 9.5,
) -> Tensor:
    r"""The cross-batch zero-shot loss L_ZS [gsp, Eq. 4.4].

    The batch is split into two halves without a common class (:func:`class_halves`). The map A
    from attributes to class embeddings is fitted on one half and predicts the other,

    .. math::
        A_b = \Upsilon_b (Z_b^\top Z_b + r I)^{-1} Z_b^\top, \qquad \hat\upsilon_i = A_b z_i,

    and the loss of a half is the mean over its images of the cross-entropy of
    softmax(scale · Υᵀυ̂) over all C classes. The two are added. Gradients flow through the fit and
    through the targets. Computed in float32, or float64 where an argument is, also under autocast.

    Args:
        attributes: Pseudo-attributes z, (b, m).
        labels: Integers in 0..C − 1 of shape (b,), of at least two classes.
        class_embeddings: Υ as rows, (C, D); not normalised.
        ridge: r > 0.
        scale: What logits are multiplied by.

    Returns:
        A scalar.

    Raises:
        ValueError: If the batch has fewer than two classes, or a label without an embedding.

    Example:
        >>> attributes = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
        >>> zero_shot_loss(attributes, torch.tensor([0, 1, 2, 3]), attributes)
        tensor(1.4...)
    """
    check_rows("attributes", attributes)
    check_rows("class_embeddings", class_embeddings)
    labels = check_labels(labels, "labels", attributes.shape[0]).to(attributes.device)
    check_label_range(labels, class_embeddings.shape[0])
    _check_settings(ridge, scale)
    second = class_halves(labels)
    if not bool(second.any()):
        raise ValueError(
            "the zero-shot loss needs images of at least two classes in a batch, got "
            f"{len(labels)} of class {int(labels[0])}"
        )
    dtype = solve_dtype(attributes, class_embeddings)
    with torch.autocast(attributes.device.type, enabled=False):
        Z, classes = attributes.to(dtype), class_embeddings.to(dtype)
        losses = []
        for fitted, predicted in ((~second, second), (second, ~second)):
            W = ridge_fit(Z[fitted], classes[labels[fitted]], ridge)  # (m, D)
            logits = scale * (Z[predicted] @ W) @ classes.mT  # (b / 2, C)
            losses.append(F.cross_entropy(logits, labels[predicted]))
        return losses[0] + losses[1]


class ZeroShotLoss(nn.Module):
    """The zero-shot loss with its class embeddings Υ, which it learns [gsp, Sec. 4.3].

    They start as normal vectors of variance 2 / C and are not normalised. They train at the rate of
    the network, as in the authors' practice, and so are no proxies.

    Args:
        num_classes: Classes C that are trained on.
        embedding_size: Size D of a class embedding; the papers take that of the image embeddings.
        ridge: Ridge r > 0 of the fit.
        scale: What logits are multiplied by.
        seed: Where the class embeddings start; the global random state plays no part.

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
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_count("embedding_size", embedding_size)
        _check_settings(ridge, scale)
        self.ridge = ridge
        self.scale = scale
        drawn = initial_vectors(num_classes, embedding_size, seed=seed, kind=CLASS_EMBEDDINGS)
        self.class_embeddings = nn.Parameter(drawn)

    def forward(self, attributes: Tensor, labels: Tensor, indices_tuple: None = None) -> Tensor:
        """The loss of pseudo-attributes (b, m) with their labels (b,).

        ``indices_tuple`` is there for the call shape of pytorch-metric-learning and must be None.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple must be None: the zero-shot loss compares no pairs")
        return zero_shot_loss(attributes, labels, self.class_embeddings, self.ridge, self.scale)

    def proxy_parameters(self) -> list[nn.Parameter]:
        """None: class embeddings train as the network does."""
        return []

    def extra_repr(self) -> str:
        """What it is, for ``print``."""
        classes, size = self.class_embeddings.shape
        return f"{classes}, {size}, ridge={self.ridge}, scale={self.scale}"


def _check_settings(ridge: float, scale: float) -> None:
    for name, value in (("ridge", ridge), ("scale", scale)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive finite number, got {value}")
