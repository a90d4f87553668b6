"""Trainable SMK pooling (T-SMK): smoothed, reduced local features weighted by their norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import MapPool, Pooled
from sumpool.transport.validation import check_at_least_one, solve_dtype

# Added to squared norms, as in the original; makes the weights of an all-zero map uniform.
_NORM_FLOOR = 1e-10


class SmkPool2d(MapPool):
    r"""Pooling of maps as in the training of local descriptors for match kernels [tsmk].

    The order is that of the original. The attention w_j is the norm of the backbone's feature;
    features are then averaged over 3×3 neighborhoods (within the map), mapped to fewer dimensions
    by P with a shift b, and summed:

    .. math::
        w_j = \sqrt{‖f_j‖_2^2 + 10^{-10}}, \qquad
        o_j = P \operatorname{mean}_{i ∈ N_{3×3}(j)} f_i + b, \qquad
        \sum_j w_j\, o_j.

    In the original, P and b are a PCA whitening of sampled features, computed once and then fixed,
    and the sum is ℓ2-normalized; here they are learned with the rest, and normalization is left
    to the model. The reported weights are w_j / Σ_i w_i.

    Args:
        channels: Channels C of the maps.
        embedding_size: Length of the reduced features and of the embedding.
        kernel_size: Side of the neighborhood, odd; 1 disables smoothing.
        normalize_local: Whether to divide each o_j by its norm before the sum, so that w_j alone
            determines its contribution. The original does so when matching descriptors, but not
            when training them.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> out = SmkPool2d(32, 16).pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape
        (torch.Size([2, 16]), torch.Size([2, 7, 7]))
    """

    pool_type = "t-smk"
    linear_map = "inside"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        *,
        kernel_size: int = 3,
        normalize_local: bool = False,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, embedding_size=embedding_size)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and positive, got {kernel_size}")
        self.channels = channels
        self.embedding_size = embedding_size
        self.kernel_size = kernel_size
        self.normalize_local = normalize_local
        self.reduce = nn.Linear(channels, embedding_size, device=device, dtype=dtype)

    def pool_map(self, x: Tensor, details: bool = True) -> Pooled:
        """Sum smoothed, reduced features of ``x`` (B, C, H, W), weighted by norms."""
        with torch.autocast(x.device.type, enabled=False):
            f = x.to(solve_dtype(x, self.reduce.weight))
            attention = (f.square().sum(1) + _NORM_FLOOR).sqrt().flatten(1)  # (B, n)
            smooth = F.avg_pool2d(
                f, self.kernel_size, 1, self.kernel_size // 2, count_include_pad=False
            )
            embedding = self._weighted_sum(smooth.flatten(2), attention)
            weights = attention / attention.sum(-1, keepdim=True) if details else None
        return Pooled(embedding.to(x.dtype), weights, None)

    def _weighted_sum(self, smooth: Tensor, attention: Tensor) -> Tensor:
        if self.normalize_local:
            local = F.normalize(affine(self.reduce, smooth.mT), dim=-1)  # (B, n, D)
            return (attention.unsqueeze(1) @ local).squeeze(1)
        # The map can be applied after the sum: Σ w_j (P f_j + b) = Σ w (P Σ w_j f_j / Σ w + b).
        total = attention.sum(-1, keepdim=True)  # (B, 1)
        mean = (smooth @ (attention / total).unsqueeze(-1)).squeeze(-1)  # (B, C)
        return total * affine(self.reduce, mean)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return (
            f"kernel_size={self.kernel_size}, normalize_local={self.normalize_local}, "
            f"input_fmt={self.input_fmt!r}"
        )
