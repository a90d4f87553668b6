"""Generalized max pooling (GeMax): weights that make every local feature count alike."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_positive, solve_dtype

#: Ridge that is always there, as a share of the trace: what keeps a system of rank below its size
#: definite in float64 however large the features.
_LEAST_RIDGE = 1e-13


def equalizing_weights(features: Tensor, ridge: float, mask: Tensor | None = None) -> Tensor:
    r"""The weights α of generalized max pooling [gemax].

    .. math::
        (F F^\top + λ I_n)\, α = 1_n

    so that the pooled vector :math:`ξ = F^\top α` minimizes
    :math:`\lVert F ξ - 1 \rVert^2 + λ \lVert ξ \rVert^2`: every local feature is about as similar
    to it. By a Cholesky factor of the system of n positions, which maps and sequences have fewer of
    than channels, as a rule, and whose size may stay open in an export. Always in float64: with
    features of any magnitude beside λ the system is too ill-conditioned for float32.

    Args:
        features: Local features F, (..., n, C).
        ridge: λ > 0.
        mask: True for valid features, (..., n); the others have weight 0.

    Returns:
        A tensor of shape (..., n) in float64; weights may be negative.

    Example:
        >>> f = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> equalizing_weights(f, 1.0)
        tensor([0.3333, 0.3333, 0.5000], dtype=torch.float64)
    """
    wide = features.double()
    wanted = torch.ones_like(wide[..., :1])  # (..., n, 1)
    if mask is not None:
        wide = wide.masked_fill(~mask.unsqueeze(-1), 0)  # whatever stands there
        wanted = wanted * mask.unsqueeze(-1)
    with torch.autocast(features.device.type, enabled=False):
        gram = wide @ wide.mT  # (..., n, n)
        squares = wide.square().sum((-2, -1))[..., None, None]
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        # Positive definite by its ridge; features that are not finite give NaN.
        factor, _ = torch.linalg.cholesky_ex(gram + (ridge + _LEAST_RIDGE * squares) * eye)
        # Not cholesky_solve, which for several systems waits for a CUDA device.
        halfway = torch.linalg.solve_triangular(factor, wanted, upper=False)
        alpha: Tensor = torch.linalg.solve_triangular(factor.mT, halfway, upper=True)
        return alpha.squeeze(-1)


class _GeneralizedMaxPool(GlobalPool):
    pool_type = "gemax"

    def __init__(
        self,
        ridge: float = 1.0,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_positive(ridge=ridge)
        self.ridge = float(ridge)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The sum of the valid ones of ``features`` (B, n, C) by weights that equalize them."""
        alpha = equalizing_weights(features, self.ridge, mask)  # (B, n)
        features = zero_invalid(features, mask)
        with torch.autocast(features.device.type, enabled=False):
            embedding = (alpha.unsqueeze(-2) @ features.double()).squeeze(-2)
        weights = None
        if details:
            size = alpha.abs()
            weights = (size / size.sum(-1, keepdim=True)).to(solve_dtype(features))
        return Pooled(embedding.to(features.dtype), weights, None)

    def extra_repr(self) -> str:
        """What the layer is, for ``print``."""
        return f"ridge={self.ridge}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"


class GeneralizedMaxPool2d(_GeneralizedMaxPool):
    r"""Generalized max pooling (GeMax) of maps [gemax].

    .. math::
        ξ = F^\top α, \qquad (F F^\top + λ I_n)\, α = 1_n

    for the n × C matrix F of valid positions. All positions are about equally similar to ξ, so that
    a rare one counts as much as a frequent one; large λ tends to sum pooling. The weights given
    for the positions are |α_j| / Σ_i |α_i|, although α itself may be negative.

    λ compares with squared norms of local features. The original cross-validates it for features
    of norm 1; 1 is the value of [gsp]'s experiments, on features as they come.

    Args:
        ridge: λ > 0.
        flatten, input_fmt, num_prefix_tokens: As in :class:`GlobalPool`.

    Example:
        >>> out = GeneralizedMaxPool2d().pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class GeneralizedMaxPool1d(_GeneralizedMaxPool):
    """GeMax pooling of token sequences; arguments as in :class:`GeneralizedMaxPool2d`."""

    _formats = FORMATS_1D
