"""Bag of queries (BoQ): learned queries attend to features after each of several encoders."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine, layer_norm
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, zero_invalid
from sumpool.pooling.rivals.multihead import Multihead, count_parts
from sumpool.transport.validation import check_at_least_one, solve_dtype


class _Block(nn.Module):
    """Encoder of positions, with queries that attend to its output."""

    def __init__(
        self,
        width: int,
        queries: int,
        heads: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.among_positions = Multihead(width, heads, device=device, dtype=dtype)
        self.attended_norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.widen = nn.Linear(width, 4 * width, device=device, dtype=dtype)
        self.narrow = nn.Linear(4 * width, width, device=device, dtype=dtype)
        self.encoded_norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.queries = nn.Parameter(torch.empty(1, queries, width, device=device, dtype=dtype))
        self.among_queries = Multihead(width, heads, device=device, dtype=dtype)
        self.query_norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.of_positions = Multihead(width, heads, device=device, dtype=dtype)
        self.found_norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the queries from a standard normal; layers keep torch's initialization."""
        nn.init.normal_(self.queries)

    def forward(
        self, x: Tensor, mask: Tensor | None, details: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Encode ``x`` (B, n, d); return it, the outputs of the queries and their attention."""
        x = self.encode(x, mask)
        asked = self.asked(x)  # (B, M, d)
        found = layer_norm(self.found_norm, self.of_positions(asked, x, mask))
        return x, found, self.of_positions.shares(asked, x, mask) if details else None

    def encode(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Apply the encoder layer to positions ``x`` (B, n, d)."""
        x = layer_norm(self.attended_norm, x + self.among_positions(x, x, mask))
        wide = affine(self.widen, x).relu()
        return layer_norm(self.encoded_norm, x + affine(self.narrow, wide))

    def asked(self, x: Tensor) -> Tensor:
        """Queries (B, M, d) after self-attention, the same for all images."""
        q = self.queries.to(x.dtype)
        q = layer_norm(self.query_norm, q + self.among_queries(q, q))
        return q.expand(x.shape[0], -1, -1)


class _BoqPool(GlobalPool):
    pool_type = "boq"

    def __init__(
        self,
        channels: int,
        queries: int = 32,
        width: int = 256,
        rows: int = 8,
        *,
        blocks: int = 2,
        heads: int | None = None,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(
            channels=channels, queries=queries, width=width, rows=rows, blocks=blocks
        )
        heads = count_parts("heads", heads, max(1, width // 64), width=width)
        self.channels = channels
        self.embedding_size = width * rows
        self.reduce = nn.Linear(channels, width, device=device, dtype=dtype)
        self.reduced_norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.blocks = nn.ModuleList(
            _Block(width, queries, heads, device=device, dtype=dtype) for _ in range(blocks)
        )
        self.combine = nn.Linear(blocks * queries, rows, device=device, dtype=dtype)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Attend to ``features`` (B, n, C) with the queries of all blocks."""
        found, shares = [], []
        with torch.autocast(features.device.type, enabled=False):
            x = features.to(solve_dtype(features, self.reduce.weight))
            x = layer_norm(self.reduced_norm, affine(self.reduce, zero_invalid(x, mask)))
            for block in self.blocks:
                x, seen, share = block(x, mask, details)  # (B, n, d), (B, M, d), (B, n)
                found.append(seen)
                shares.append(share)
            rows = affine(self.combine, torch.cat(found, 1).mT)  # (B, d, rows)
            embedding = F.normalize(rows.flatten(1), dim=-1)
            weights = torch.stack(shares).mean(0) if details else None
        return Pooled(embedding.to(features.dtype), weights, None)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"input_fmt={self.input_fmt!r}"


class BoqPool2d(_BoqPool):
    r"""Bag of queries of maps [boq].

    Local features are reduced to ``width`` channels and normalized, X_0. Each block b encodes them,
    and its M learned queries Q_b attend to them after self-attention:

    .. math::
        X_b = \operatorname{Encoder}_b(X_{b-1}), \quad
        Q_b' = \operatorname{LN}(Q_b + \operatorname{MHA}(Q_b, Q_b, Q_b)), \quad
        O_b = \operatorname{LN}(\operatorname{MHA}(Q_b', X_b, X_b)) .

    A linear map combines the outputs of all blocks, O = [O_1; O_2; …], to a few rows, W O, and the
    pooled vector is W O, flattened and normalized. The encoder is a transformer layer (attention
    and a perceptron of 4 · width units with relu, each followed by a skip connection and layer
    normalization). The original has 64 queries, 512 channels and 32 rows on convolutional networks
    (``queries=64, width=512, rows=32``), and reduces features by a 3 × 3 convolution, here 1 × 1
    to support token sequences. The weights are the attention of the queries over positions,
    averaged over heads, queries and blocks; the encoders have already mixed the positions.

    Args:
        channels: Channels C of the maps.
        queries: Number M of queries per block.
        width: Channels of queries and encoded features.
        rows: Rows of W; the pooled vector has ``width`` times as many entries.
        blocks: Number of blocks.
        heads: Heads of every attention, a divisor of ``width``; None uses one per 64 channels.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = BoqPool2d(8, width=64).pool(torch.rand(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 512]), torch.Size([2, 7, 7]))
    """

    _formats = FORMATS_2D


class BoqPool1d(_BoqPool):
    """Bag of queries of token sequences; arguments as in :class:`BoqPool2d`."""

    _formats = FORMATS_1D
