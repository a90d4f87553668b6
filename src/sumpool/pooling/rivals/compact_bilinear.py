"""Compact bilinear pooling: averages of low-rank quadratic forms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.transport.validation import check_at_least_one, solve_dtype


def rank_k_bilinear(features: Tensor, u: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Mean over local features of E quadratic forms of rank k.

    .. math::
        y_o = \frac1n \sum_j f_j^⊤ M_o f_j, \qquad M_o = \sum_{r=1}^k u_{or} v_{or}^⊤,

    computed as the sum of (u_{or}ᵀ f_j)(v_{or}ᵀ f_j), without M_o. Rank 1 is the Hadamard form
    U f ⊙ V f of [hadamard], rank k that of [mfb]. In float32, or float64 if an input is float64.

    Args:
        features: Local features, (..., n, C).
        u: Left factors, (E, k, C).
        v: Right factors, (E, k, C).
        mask: True for valid features, (..., n); invalid ones are ignored, even if NaN.

    Returns:
        A tensor of shape (..., E), in the dtype of the features.

    Example:
        >>> f = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> u, v = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
        >>> rank_k_bilinear(f, u, v)  # the mean of f_1 f_2
        tensor([7.])
    """
    dtype = solve_dtype(features, u, v)
    with torch.autocast(features.device.type, enabled=False):
        local = features.to(dtype)
        local = zero_invalid(local, mask)
        left = local @ u.to(dtype).flatten(0, 1).mT  # (..., n, E k)
        right = local @ v.to(dtype).flatten(0, 1).mT
        total = (left * right).sum(-2)  # (..., E k)
        out = total.unflatten(-1, u.shape[:2]).sum(-1)
        count = features.shape[-2] if mask is None else mask.sum(-1, keepdim=True)
        mean: Tensor = out / count
    return mean.to(features.dtype)


def signed_sqrt(x: Tensor, offset: float = 1e-4) -> Tensor:
    r"""Signed square root with a bounded slope at 0.

    .. math::
        \operatorname{sign}(x) (\sqrt{|x| + δ} - \sqrt δ) = \frac{x}{\sqrt{|x| + δ} + \sqrt δ},

    whose slope at 0 is 1/(2√δ), while that of sign(x) √|x| is infinite.

    Args:
        x: Any tensor.
        offset: δ > 0.

    Returns:
        A tensor like ``x``.

    Example:
        >>> signed_sqrt(torch.tensor([-4.0, 0.0, 9.0]), 1e-12)
        tensor([-2.,  0.,  3.])
    """
    return x / ((x.abs() + offset).sqrt() + math.sqrt(offset))


class _CompactBilinearPool(GlobalPool):
    pool_type = "compact-bilinear"
    linear_map = "inside"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        *,
        rank: int = 8,
        signed_sqrt: bool = True,
        l2: bool = False,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, embedding_size=embedding_size, rank=rank)
        self.channels = channels
        self.embedding_size = embedding_size
        self.rank = rank
        self.signed_sqrt = signed_sqrt
        self.l2 = l2
        shape = embedding_size, rank, channels
        self.u = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.v = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw normal factors; the scale of outputs depends neither on rank nor on channels."""
        std = self.rank**-0.25 / math.sqrt(self.u.shape[-1])
        nn.init.normal_(self.u, std=std)
        nn.init.normal_(self.v, std=std)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Average the quadratic forms of ``features`` (B, n, C)."""
        local = features.to(solve_dtype(features, self.u))
        embedding = rank_k_bilinear(local, self.u, self.v, mask)
        if self.signed_sqrt:
            embedding = signed_sqrt(embedding)
        if self.l2:
            embedding = F.normalize(embedding, dim=-1)
        return Pooled(embedding.to(features.dtype), None, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return (
            f"{self.channels}, {self.embedding_size}, rank={self.rank}, "
            f"signed_sqrt={self.signed_sqrt}, l2={self.l2}, input_fmt={self.input_fmt!r}"
        )


class CompactBilinearPool2d(_CompactBilinearPool):
    r"""Compact bilinear pooling of maps with rank-k projections.

    Bilinear pooling [bilinear] is the mean of f_j f_jᵀ, C² numbers; compact forms
    [compact-bilinear] keep a few linear functions of it. Here each is a learned matrix of rank k,

    .. math::
        y_o = \frac1n \sum_j f_j^⊤ \Big(\sum_{r=1}^k u_{or} v_{or}^⊤\Big) f_j.

    Rank 1 is the Hadamard form U f ⊙ V f [hadamard]. A signed square root follows, as is usual
    with bilinear features; ℓ2 normalization, also usual, is left to the model unless ``l2`` is set.
    There are no position weights, since a position contributes differently to every output.

    Args:
        channels: Channels C of the maps.
        embedding_size: Number of quadratic forms and length of the embedding.
        rank: Rank k of each form.
        signed_sqrt: Whether to replace outputs by their signed square root, see
            :func:`signed_sqrt`.
        l2: Whether to then divide the embedding by its norm.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> CompactBilinearPool2d(8, 16)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 16])
    """

    _formats = FORMATS_2D


class CompactBilinearPool1d(_CompactBilinearPool):
    """Compact bilinear pooling of sequences; arguments as in :class:`CompactBilinearPool2d`."""

    _formats = FORMATS_1D
