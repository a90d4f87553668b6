"""Generalized max pooling (GeMax): weights that equalize the influence of local features."""

from __future__ import annotations

import torch
from torch import Tensor

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_positive, solve_dtype

#: Ridge that is always added, relative to the trace: it keeps rank-deficient systems positive
#: definite in float64, however large the features.
_LEAST_RIDGE = 1e-13


def equalizing_weights(features: Tensor, ridge: float, mask: Tensor | None = None) -> Tensor:
    r"""Weights α of generalized max pooling [gemax].

    .. math::
        (F F^\top + λ I_n)\, α = 1_n

    so that the pooled vector :math:`ξ = F^\top α` minimizes
    :math:`\lVert F ξ - 1 \rVert^2 + λ \lVert ξ \rVert^2`: all local features are about equally
    similar to it. Solved by a Cholesky factorization of the n × n system, since n is usually less
    than the number of channels and may be dynamic in exported models. Always in float64: if
    features are large relative to λ, the system is too ill-conditioned for float32.

    Args:
        features: Local features F, (..., n, C).
        ridge: λ > 0.
        mask: True for valid features, (..., n); invalid ones have weight 0.

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
        wide = wide.masked_fill(~mask.unsqueeze(-1), 0)  # even NaN
        wanted = wanted * mask.unsqueeze(-1)
    with torch.autocast(features.device.type, enabled=False):
        gram = wide @ wide.mT  # (..., n, n)
        squares = wide.square().sum((-2, -1))[..., None, None]
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        # Positive definite by its ridge; non-finite features give NaN.
        factor, _ = torch.linalg.cholesky_ex(gram + (ridge + _LEAST_RIDGE * squares) * eye)
        # Not cholesky_solve, which synchronizes with CUDA devices for batches of systems.
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
        """Sum valid ``features`` (B, n, C) with weights that equalize them."""
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
        """Extra line of the module's repr."""
        return f"ridge={self.ridge}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"


class GeneralizedMaxPool2d(_GeneralizedMaxPool):
    r"""Generalized max pooling (GeMax) of maps [gemax].

    .. math::
        ξ = F^\top α, \qquad (F F^\top + λ I_n)\, α = 1_n

    for the n × C matrix F of valid positions. All positions are about equally similar to ξ, so that
    a rare one counts as much as a frequent one; large λ tends to sum pooling. Since α may be
    negative, the reported weights are |α_j| / Σ_i |α_i|.

    λ is on the scale of squared norms of local features. The original cross-validates it for
    features of norm 1; the experiments of [gsp] use 1 with unnormalized features.

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
