"""Toy study: which pixels of a small map the poolings select [gsp, fig. 1], [thesis, fig. 5.2].

A 10×10 map of 3-dimensional features has a reddish and a bluish block of 5×5 on a greenish
background: half of it is foreground. The two prototypes are red and blue. The share μ is
underestimated at 0.2, and correct at 0.5 for comparison.

    sumpool study toy

Cost: a second. Expected: at μ = 0.2 the hard problem P1 takes 20 pixels and gives exactly 0 to
the other 30 of the 50 foreground pixels. The smooth problem P2 (ε = 5) gives every foreground
pixel at least half of the largest weight, and more than 99 % of all weight to the foreground.
Average pooling gives the foreground half of the weight. The seed draws the noise of the features.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from sumpool.studies.shared.seeds import seed_range
from sumpool.system.rows import ResultStore, Row
from sumpool.transport import sum_pool


@dataclass(frozen=True)
class ToySettings:
    """Settings of the map and the poolings."""

    side: int = 10  #: Height and width of the map
    block: int = 5  #: Height and width of the red and blue blocks
    #: Standard deviation of the noise on every feature, which is then clamped to [0, 1].
    noise: float = 0.05
    shares: tuple[float, ...] = (0.2, 0.5)  #: Shares μ for which P1 and P2 are solved
    eps: float = 5.0  #: Inverse smoothing ε of P2
    covered: float = 0.5  #: Share of the largest weight from which a pixel counts as covered


#: The prototypes are red and blue; the background is green.
PROTOTYPES = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
GROUND = (0.0, 1.0, 0.0)


def feature_map(settings: ToySettings, seed: int) -> tuple[Tensor, Tensor]:
    """Return the map (side, side, 3), float64 with noise drawn from ``seed``, and its foreground.

    The foreground is a boolean mask (side, side), True for the red block in the first corner and
    the blue block in the last.
    """
    side, block = settings.side, settings.block
    if not 0 < 2 * block <= side:
        raise ValueError(f"block must be between 1 and half of side={side}, got {block}")
    red, blue = torch.tensor(PROTOTYPES, dtype=torch.float64)
    features = torch.tensor(GROUND, dtype=torch.float64).repeat(side, side, 1)
    features[:block, :block] = red
    features[-block:, -block:] = blue
    foreground = features[..., 1] == 0
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(features.shape, generator=generator, dtype=torch.float64)
    return (features + settings.noise * noise).clamp(0, 1), foreground


def pooling_weights(features: Tensor, method: str, mu: float, eps: float) -> Tensor:
    """Return the weights (h, w) that "GAP", "P1" (hard) or "P2" (smooth) give a map (h, w, 3).

    GAP requires μ = 1.
    """
    solvers = {"GAP": "exact", "P1": "hard", "P2": "exact"}
    if method not in solvers:
        raise ValueError(f"method must be one of {', '.join(solvers)}, got {method!r}")
    if method == "GAP" and mu != 1:
        raise ValueError(f"mu must be 1 for GAP, got {mu}")
    prototypes = torch.tensor(PROTOTYPES, dtype=features.dtype)
    out = sum_pool(features.flatten(0, 1), prototypes, mu, eps, solver=solvers[method])
    return out.weights.reshape(features.shape[:2])


def coverage(weights: Tensor, foreground: Tensor, covered: float) -> dict[str, float]:
    """Measure how the weights (h, w) cover the foreground, a boolean mask (h, w).

    Returns:
        ``foreground_weight``, the total weight of foreground pixels, out of 1; ``covered``, the
        share of foreground pixels with at least the share ``covered`` of the largest weight;
        ``ignored``, the number of foreground pixels with weight exactly 0; ``largest``, the
        largest weight.
    """
    own = weights[foreground]
    largest = weights.max()
    return {
        "foreground_weight": float(own.sum()),
        "covered": float((own >= covered * largest).double().mean()),
        "ignored": int((own == 0).sum()),
        "largest": float(largest),
    }


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
) -> list[Row]:
    """Run the study into ``out_dir``; see :class:`~sumpool.studies.shared.study.RunStudy`.

    It takes a second: ``quick`` only means one seed, and there is no progress bar.
    """
    del progress
    settings = ToySettings()
    store = ResultStore(out_dir, "toy", asdict(settings), force=force)
    problems = [(method, mu) for mu in settings.shares for method in ("P1", "P2")]
    rows = []
    for seed in seed_range(seeds, quick):
        features, foreground = feature_map(settings, seed)
        for method, mu in [("GAP", 1.0), *problems]:
            cell = {"method": method, "mu": mu, "seed": seed}
            row = store.find(cell)
            if row is None:
                begin = time.perf_counter()
                weights = pooling_weights(features, method, mu, settings.eps)
                metrics = coverage(weights, foreground, settings.covered)
                arrays = {"features": features, "foreground": foreground, "weights": weights}
                row = store.add(
                    cell,
                    metrics,
                    time.perf_counter() - begin,
                    {name: value.numpy() for name, value in arrays.items()},
                )
            rows.append(row)
    return rows
