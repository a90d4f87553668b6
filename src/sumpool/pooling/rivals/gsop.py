"""Global second-order pooling (GSoP): average pooling after attention from covariances."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import MapPool, Pooled
from sumpool.transport.validation import check_at_least_one, solve_dtype


def averaging_matrix(
    out_size: int,
    in_size: int,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Matrix of adaptive average pooling from ``in_size`` positions to ``out_size``.

    Row i averages the positions from ⌊i·in/out⌋ up to ⌈(i+1)·in/out⌉. As a matrix product, pooling
    has a deterministic gradient and supports dynamic sizes in exported models.

    Args:
        out_size: Number of rows.
        in_size: Number of columns; it may be smaller than ``out_size``.
        device: Device of the matrix.
        dtype: Dtype of the matrix.

    Returns:
        A matrix of shape (out_size, in_size) whose rows sum to 1.

    Example:
        >>> averaging_matrix(2, 3)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.5000, 0.5000]])
    """
    row = torch.arange(out_size, device=device).unsqueeze(-1)
    start = row * in_size // out_size
    end = ((row + 1) * in_size + out_size - 1) // out_size
    place = torch.arange(in_size, device=device)
    inside = (place >= start) & (place < end)
    return inside.to(dtype or torch.get_default_dtype()) / (end - start)


class _Rows(nn.Module):
    """Row-wise convolution: each row of a matrix is mapped to k numbers by filters of its own.

    Args:
        size: Number d of rows and columns.
        filters: Number k of filters per row.
        device: Device of the parameters.
        dtype: Dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        filters: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, filters, size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(size, filters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw parameters uniformly within ±1/√d, as torch does for convolutions."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, matrix: Tensor) -> Tensor:
        """Map ``matrix`` (B, d, d) to (B, d·k)."""
        weight, bias = self.weight.to(matrix.dtype), self.bias.to(matrix.dtype)
        out = torch.einsum("bij,ikj->bik", matrix, weight)
        return (out + bias).flatten(1)


class GsopPool2d(MapPool):
    r"""Average pooling of maps after global second-order attention [gsop].

    Both branches start from g_j = W relu(f_j) + b, each with its own W to C' channels.

    * Channels: the covariance over positions of relu(g), (C', C'); each of its rows is mapped to 4
      numbers by filters of its own (row-wise convolution), and the 4 C' numbers to C logits; their
      sigmoids are the attention a.
    * Positions: g is resized to 8×8 by adaptive average pooling; the covariance of the 64 positions
      over channels, (64, 64), is mapped to 64 logits by a row-wise convolution, relu and a linear
      layer; their sigmoids are resized to H×W in the same way, which gives the attention s.

    The average of the two attended maps is pooled:

    .. math::
        \frac1n \sum_j \frac{a ⊙ f_j + s_j f_j}{2}.

    Batch normalization, before and after the covariances in the original, is omitted, so that the
    embedding of an image does not depend on its batch. The reported weights are s_j / Σ_i s_i.

    Args:
        channels: Channels C of the maps.
        reduced: Number C' of channels of the covariances; None uses min(128, C).
        grid: Side of the grid that positions are resized to.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = GsopPool2d(32).pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 32]), torch.Size([2, 7, 7]))
    """

    pool_type = "gsop"

    #: Number of filters per row, as in the original.
    row_filters: ClassVar[int] = 4

    def __init__(
        self,
        channels: int,
        reduced: int | None = None,
        grid: int = 8,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, grid=grid)
        if reduced is not None and reduced < 1:
            raise ValueError(f"reduced must be None or at least 1, got {reduced}")
        self.channels = channels
        self.grid = grid
        size = min(128, channels) if reduced is None else reduced
        k, cells = self.row_filters, grid * grid
        self.channel_reduce = nn.Linear(channels, size, device=device, dtype=dtype)
        self.channel_rows = _Rows(size, k, device, dtype)
        self.channel_expand = nn.Linear(k * size, channels, device=device, dtype=dtype)
        self.spatial_reduce = nn.Linear(channels, size, device=device, dtype=dtype)
        self.spatial_rows = _Rows(cells, k, device, dtype)
        self.spatial_expand = nn.Linear(k * cells, cells, device=device, dtype=dtype)

    def pool_map(self, x: Tensor, details: bool = True) -> Pooled:
        """Average maps ``x`` (B, C, H, W) after channel and spatial attention."""
        with torch.autocast(x.device.type, enabled=False):
            maps = x.to(solve_dtype(x, self.channel_reduce.weight))
            local = maps.flatten(2).mT  # (B, n, C)
            positive = local.relu()
            a = self._channel_attention(positive)
            s = self._spatial_attention(positive, x.shape[2], x.shape[3])  # (B, n)
            attended = (s.unsqueeze(1) @ local).squeeze(1) / s.shape[1]
            embedding = (a * local.mean(1) + attended) / 2
            weights = None
            if details:
                # Avoids 0 / 0 where every sigmoid is 0.
                shares = s + torch.finfo(s.dtype).tiny
                weights = shares / shares.sum(-1, keepdim=True)
        return Pooled(embedding.to(x.dtype), weights, None)

    def _channel_attention(self, positive: Tensor) -> Tensor:
        g = affine(self.channel_reduce, positive).relu()  # (B, n, C')
        covariance = _covariance(g.mT)  # (B, C', C')
        return affine(self.channel_expand, self.channel_rows(covariance)).sigmoid()

    def _spatial_attention(self, positive: Tensor, height: int, width: int) -> Tensor:
        grid, like = self.grid, (positive.device, positive.dtype)
        g = affine(self.spatial_reduce, positive).mT.unflatten(-1, (height, width))
        down_h = averaging_matrix(grid, height, *like)
        down_w = averaging_matrix(grid, width, *like)
        cells = (down_h @ g @ down_w.mT).flatten(2).mT  # (B, grid², C')
        rows = self.spatial_rows(_covariance(cells)).relu()
        attention = affine(self.spatial_expand, rows).sigmoid().unflatten(-1, (grid, grid))
        up_h = averaging_matrix(height, grid, *like)
        up_w = averaging_matrix(width, grid, *like)
        spread: Tensor = up_h @ attention @ up_w.mT  # (B, H, W)
        return spread.flatten(1)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"grid={self.grid}, input_fmt={self.input_fmt!r}"


def _covariance(x: Tensor) -> Tensor:
    """Covariance (B, d, d) of the d rows of ``x`` (B, d, n), over its columns."""
    centered = x - x.mean(-1, keepdim=True)
    return centered @ centered.mT / x.shape[-1]
