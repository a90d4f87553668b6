"""CBAM pooling: average pooling after channel and spatial attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import MapPool, Pooled
from sumpool.transport.validation import check_at_least_one, solve_dtype


class CbamPool2d(MapPool):
    r"""Average pooling of maps after the attention module CBAM [cbam].

    Channels are weighted first, by a multilayer perceptron shared by mean and maximum over
    positions, then positions, by a convolution of mean and maximum over channels:

    .. math::
        c = σ(\operatorname{MLP}(\operatorname{mean}_j f_j) + \operatorname{MLP}(\max_j f_j)),
        \quad g_j = c ⊙ f_j, \quad
        s = σ(\operatorname{conv}_{7×7}[\operatorname{mean}_c g; \max_c g]), \quad
        \frac1n \sum_j s_j g_j.

    The convolution has a bias instead of the batch normalization of the original, so that the
    embedding of an image does not depend on its batch. The reported weights are s_j / Σ_i s_i.

    Args:
        channels: Channels C of the maps.
        reduction: The hidden layer of the perceptron has C / reduction units, at least 1.
        kernel_size: Kernel size of the convolution, odd.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = CbamPool2d(32).pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 32]), torch.Size([2, 7, 7]))
    """

    pool_type = "cbam"

    def __init__(
        self,
        channels: int,
        reduction: int = 16,
        kernel_size: int = 7,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, reduction=reduction)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and positive, got {kernel_size}")
        self.channels = channels
        hidden = max(1, channels // reduction)
        self.squeeze = nn.Linear(channels, hidden, device=device, dtype=dtype)
        self.expand = nn.Linear(hidden, channels, device=device, dtype=dtype)
        self.spatial = nn.Conv2d(
            2, 1, kernel_size, padding=kernel_size // 2, device=device, dtype=dtype
        )

    def pool_map(self, x: Tensor, details: bool = True) -> Pooled:
        """Average maps ``x`` (B, C, H, W) after channel and spatial attention."""
        with torch.autocast(x.device.type, enabled=False):
            f = x.to(solve_dtype(x, self.squeeze.weight))
            g = f * self._channel_attention(f)[:, :, None, None]
            logits = self._spatial_logits(g).flatten(1)  # (B, n)
            s = logits.sigmoid().unsqueeze(-1)
            embedding = (g.flatten(2) @ s).squeeze(-1) / logits.shape[1]  # (B, C)
            # From logarithms, so that weights sum to 1 even where every sigmoid is 0.
            weights = F.logsigmoid(logits).softmax(-1) if details else None
        return Pooled(embedding.to(x.dtype), weights, None)

    def _channel_attention(self, f: Tensor) -> Tensor:
        ends = torch.stack([f.mean((2, 3)), f.amax((2, 3))])  # (2, B, C)
        out = affine(self.expand, affine(self.squeeze, ends).relu())
        return out.sum(0).sigmoid()  # (B, C)

    def _spatial_logits(self, g: Tensor) -> Tensor:
        ends = torch.stack([g.mean(1), g.amax(1)], 1)  # (B, 2, H, W)
        assert self.spatial.bias is not None
        weight, bias = self.spatial.weight.to(g.dtype), self.spatial.bias.to(g.dtype)
        return F.conv2d(ends, weight, bias, padding=weight.shape[-1] // 2)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"input_fmt={self.input_fmt!r}"
