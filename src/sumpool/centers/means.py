"""Means that lean to the large or to the small numbers of a set."""

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
    r"""The K-skewed mean: of the K largest numbers, or of the :math:`|K|` smallest for K < 0.

    [skew, Eq. 5]. Its gradient is 1/|K| at the numbers that are taken and 0 elsewhere.

    Args:
        x: Numbers, of any shape.
        k: K, between 1 and the number of values in size; its sign chooses the end.
        dim: The dimension that is averaged.
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
    check_integer("k", k, f"an integer with 1 <= |k| <= {count}", 1 <= abs(k) <= count)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, abs(k))
    return end_mean(x, k, dim, mask)


def log_exp_mean(x: Tensor, lam: float, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""The log-exp mean :math:`\frac1\lambda\log\bigl(\frac1N\sum_i e^{\lambda x_i}\bigr)`.

    [skew, Eq. 7]. It increases in λ, from the minimum at −∞ through the arithmetic mean at 0 to the
    maximum at ∞; these limits may be asked for. Nothing overflows, and the small λ are as exact
    as the large ones: with the largest number (the smallest for λ < 0) taken out of the sum, and
    near 0 with ``expm1`` and ``log1p``. float16 and bfloat16 are computed in float32.

    Args:
        x: Numbers, of any shape.
        lam: λ, any real number or ±inf.
        dim: The dimension that is averaged.
        mask: True for numbers that count; broadcasts to the shape of ``x``.

    Returns:
        The mean, of the shape of ``x`` without ``dim``. Its gradient is the softmax of λx.

    Example:
        >>> x = torch.tensor([0.0, 1.0])
        >>> [round(float(log_exp_mean(x, lam)), 3) for lam in (-1000.0, -1.0, 0.0, 1.0, 1000.0)]
        [0.001, 0.38, 0.5, 0.62, 0.999]
    """
    check_numbers(x, dim, mask)
    check_number("lam", lam, _REAL, True)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, 1)
    return smooth_mean(x.to(solve_dtype(x)), lam, dim, mask).to(x.dtype)


def power_mean(x: Tensor, lam: float, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""The power mean :math:`(\frac1N\sum_i x_i^\lambda)^{1/\lambda}` of positive numbers.

    [skew, Eq. 7]. The exponential of the log-exp mean of log x. It increases in λ, from the minimum
    at −∞ through the harmonic (−1), the geometric (0) and the arithmetic mean (1) to the maximum.

    Args:
        x: Positive numbers, of any shape. They are looked at unless the call is compiled or
            recorded, which on an accelerator waits for it.
        lam: λ, any real number or ±inf.
        dim: The dimension that is averaged.
        mask: True for numbers that count; broadcasts to the shape of ``x``. Others need not be
            positive.

    Returns:
        The mean, of the shape of ``x`` without ``dim``.

    Example:
        >>> x = torch.tensor([1.0, 4.0])
        >>> [round(float(power_mean(x, lam)), 4) for lam in (-1.0, 0.0, 1.0, float("inf"))]
        [1.6, 2.0, 2.5, 4.0]
    """
    check_numbers(x, dim, mask)
    check_number("lam", lam, _REAL, True)
    if mask is not None:
        mask = mask.expand_as(x)
        check_left(mask, dim, 1)
    check_positive(x, mask)
    if math.isinf(lam):
        return smooth_mean(x, lam, dim, mask)
    if mask is not None:
        x = x.masked_fill(~mask, 1.0)
    return smooth_mean(x.to(solve_dtype(x)).log(), lam, dim, mask).exp().to(x.dtype)


def end_mean(x: Tensor, k: int, dim: int, mask: Tensor | None = None) -> Tensor:
    """The K-skewed mean without its checks; the mask has the shape of ``x``."""
    if mask is not None:
        x = x.masked_fill(~mask, -math.inf if k > 0 else math.inf)
    return x.topk(abs(k), dim, largest=k > 0, sorted=False).values.mean(dim)


def smooth_mean(x: Tensor, lam: float, dim: int, mask: Tensor | None = None) -> Tensor:
    """The log-exp mean without its checks, in the dtype of ``x``; the mask has its shape."""
    limits = torch.finfo(x.dtype)
    if mask is not None:
        x = x.masked_fill(~mask, 0.0)
    if abs(lam) < limits.tiny / limits.eps:  # λ · x would lose digits, and is lost beside x anyway
        return x.mean(dim) if mask is None else x.sum(dim) / mask.sum(dim)
    end = _end(x, lam, dim, mask)
    if math.isinf(lam):
        return end.squeeze(dim)
    top = end.detach()  # the mean does not depend on what is taken out of the sum
    exponents = lam * (x - top)  # at most 0
    count: Tensor | int = x.shape[dim]
    if mask is not None:
        exponents = exponents.masked_fill(~mask, 0.0)
        count = mask.sum(dim, keepdim=True)
    # The mean of the powers less 1 has all its digits while that mean is near 1, the mean itself
    # has them everywhere else. It is at least 1/N.
    less_one = exponents.expm1().sum(dim, keepdim=True) / count
    powers = exponents.exp()
    if mask is not None:
        powers = powers.masked_fill(~mask, 0.0)
    share = powers.sum(dim, keepdim=True) / count
    log_mean = torch.where(less_one > -0.5, less_one.clamp(min=-0.5).log1p(), share.log())
    return (top + log_mean / lam).squeeze(dim)


def _end(x: Tensor, lam: float, dim: int, mask: Tensor | None) -> Tensor:
    """The largest number for λ > 0, the smallest for λ < 0."""
    if mask is not None:
        x = x.masked_fill(~mask, -math.inf if lam > 0 else math.inf)
    return x.amax(dim, keepdim=True) if lam > 0 else x.amin(dim, keepdim=True)
