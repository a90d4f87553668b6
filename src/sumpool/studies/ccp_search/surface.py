"""A smooth surface through noisy trials: Gaussian process regression on the unit square."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

Floats = NDArray[np.float64]


class Surface(NamedTuple):
    """Posterior at the queried points: its ``mean`` (q,) and standard ``deviation`` (q,)."""

    mean: Floats
    deviation: Floats


def fit_surface(points: Floats, values: Floats, asked: Floats) -> Surface:
    """Fit a Gaussian process with a Matérn 5/2 kernel and noise by maximum likelihood.

    It is fitted to ``values`` (n,) at ``points`` (n, 2) in the unit square, evaluated at ``asked``.

    Example:
        >>> points = np.array([[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]])
        >>> fit_surface(points, np.array([1.0, 3.0, 1.0]), points).mean.argmax()
        np.int64(1)
    """
    signal = ConstantKernel(1.0, (0.1, 10.0)) * Matern([0.5, 0.5], (0.15, 2.4), nu=2.5)
    process = GaussianProcessRegressor(
        signal + WhiteKernel(0.1, (0.01, 1.0)),
        normalize_y=True,
        n_restarts_optimizer=4,
        random_state=0,
    )
    with warnings.catch_warnings():  # with few trials, scales lie at their bounds
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(points, values)
    mean, deviation = process.predict(asked, return_std=True)
    # The deviation of the surface, not of another noisy trial on it.
    noise = process.kernel_.k2.noise_level * (float(values.std()) or 1.0) ** 2
    return Surface(mean, np.sqrt(np.clip(deviation**2 - noise, 0, None)))
