"""Means that emphasize the largest or smallest numbers of a set."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sumpool.centers.arguments import (
    check_integer,
    check_left,
    check_number,
    check_numbers,
    check_positive,
)
from sumpool.transport.validation import solve_dtype

_REAL = "a real number or ±inf"


def skewed_mean(x: Tensor, k: int, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""K-skewed mean: that of the K largest numbers, or of the :math:`|K|` smallest for K < 0.

    [skew, Eq. 5]. Its gradient is 1/|K| at the selected numbers and 0 elsewhere.

    Args:
        x: Numbers, of any shape.
        k: K, with 1 ≤ |K| ≤ the number of values; its sign selects largest or smallest.
        dim: Dimension to average over.
        mask: True for numbers that count; broadcasts to the shape of ``x``.

    Returns:
        The mean, of the shape of ``x`` without ``dim``.

    Example:
        >>> x = torch.tensor([4.0, 1.0, 3.0, 2.0])
        >>> skewed_mean(x, 2), skewed_mean(x, -1), skewed_mean(x, -4)
        (tensor(3.5000), tensor(1.), tensor(2.5000))
    """
    check_numbers(x, dim, mask)
    count = x.shape[dim]
    accepted = f"an integer with 1 <= |k| <= {count}"
    k = check_integer("k", k, accepted, lambda it: 1 <= abs(it) <= count)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, abs(k))
    return extreme_mean(x, k, dim, mask)


def log_exp_mean(x: Tensor, lam: float, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""Log-exp mean :math:`\frac1\lambda\log\bigl(\frac1N\sum_i e^{\lambda x_i}\bigr)`.

    [skew, Eq. 7]. It increases in λ, from the minimum at −∞ through the arithmetic mean at 0 to the
    maximum at ∞; these limits are valid values. The largest number (the smallest for λ < 0) is
    factored out of the sum to prevent overflow, and ``expm1`` and ``log1p`` keep small λ as
    accurate as large ones. float16 and bfloat16 are computed in float32.

    Args:
        x: Numbers, of any shape.
        lam: λ, any real number or ±inf.
        dim: Dimension to average over.
        mask: True for numbers that count; broadcasts to the shape of ``x``.

    Returns:
        The mean, of the shape of ``x`` without ``dim``. Its gradient is the softmax of λx.

    Example:
        >>> x = torch.tensor([0.0, 1.0])
        >>> [round(float(log_exp_mean(x, lam)), 3) for lam in (-1000.0, -1.0, 0.0, 1.0, 1000.0)]
        [0.001, 0.38, 0.5, 0.62, 0.999]
    """
    check_numbers(x, dim, mask)
    lam = check_number("lam", lam, _REAL)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, 1)
    return smooth_mean(x.to(solve_dtype(x)), lam, dim, mask).to(x.dtype)


def power_mean(x: Tensor, lam: float, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""Power mean :math:`(\frac1N\sum_i x_i^\lambda)^{1/\lambda}` of positive numbers.

    [skew, Eq. 7]. It is the exponential of the log-exp mean of log x and increases in λ, from the
    minimum at −∞ through the harmonic (−1), geometric (0) and arithmetic mean (1) to the maximum.

    Args:
        x: Positive numbers, of any shape. Checked, which synchronizes with an accelerator, unless
            the call is compiled or captured in a CUDA graph.
        lam: λ, any real number or ±inf.
        dim: Dimension to average over.
        mask: True for numbers that count; broadcasts to the shape of ``x``. The others may be
            nonpositive.

    Returns:
        The mean, of the shape of ``x`` without ``dim``.

    Example:
        >>> x = torch.tensor([1.0, 4.0])
        >>> [round(float(power_mean(x, lam)), 4) for lam in (-1.0, 0.0, 1.0, float("inf"))]
        [1.6, 2.0, 2.5, 4.0]
    """
    check_numbers(x, dim, mask)
    lam = check_number("lam", lam, _REAL)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, 1)
    check_positive(x, mask)
    if math.isinf(lam):
        return smooth_mean(x, lam, dim, mask)
    if mask is not None:
        x = x.masked_fill(~mask, 1.0)
    return smooth_mean(x.to(solve_dtype(x)).log(), lam, dim, mask).exp().to(x.dtype)


def extreme_mean(x: Tensor, k: int, dim: int, mask: Tensor | None = None) -> Tensor:
    """K-skewed mean without checks; the mask has the shape of ``x``."""
    if mask is not None:
        x = x.masked_fill(~mask, -math.inf if k > 0 else math.inf)
    return x.topk(abs(k), dim, largest=k > 0, sorted=False).values.mean(dim)


def smooth_mean(x: Tensor, lam: float, dim: int, mask: Tensor | None = None) -> Tensor:
    """Log-exp mean without checks, in the dtype of ``x``; the mask has the shape of ``x``."""
    limits = torch.finfo(x.dtype)
    if mask is not None:
        x = x.masked_fill(~mask, 0.0)
    if abs(lam) < limits.tiny / limits.eps:  # λ · x loses digits, and its effect is negligible
        return x.mean(dim) if mask is None else x.sum(dim) / mask.sum(dim)
    end = _end(x, lam, dim, mask)
    if abs(lam) > limits.max:
        return end.squeeze(dim)
    top = end.detach()  # the mean does not depend on the number factored out
    exponents = lam * (x - top)  # at most 0
    count: Tensor | int = x.shape[dim]
    if mask is not None:
        exponents = exponents.masked_fill(~mask, 0.0)
        count = mask.sum(dim, keepdim=True)
    # expm1 is accurate while the mean of the powers is near 1, exp elsewhere. That mean is at
    # least 1/N.
    less_one = exponents.expm1().sum(dim, keepdim=True) / count
    powers = exponents.exp()
    if mask is not None:
        powers = powers.masked_fill(~mask, 0.0)
    share = powers.sum(dim, keepdim=True) / count
    log_mean = torch.where(less_one > -0.5, less_one.clamp(min=-0.5).log1p(), share.log())
    return (top + log_mean / lam).squeeze(dim)


def _end(x: Tensor, lam: float, dim: int, mask: Tensor | None) -> Tensor:
    """Return the largest number for λ > 0, the smallest for λ < 0."""
    if mask is not None:
        x = x.masked_fill(~mask, -math.inf if lam > 0 else math.inf)
    return x.amax(dim, keepdim=True) if lam > 0 else x.amin(dim, keepdim=True)
