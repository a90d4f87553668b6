"""Token study: how poolings handle shared background [gsp, fig. 3a], [thesis, fig. 5.4].

    sumpool study tokens            (5 seeds)

Sixteen classes have four tokens each and share four background tokens. A sample is 50 tokens,
about half of them from its class, the others from the background; tokens are vectors in the plane
and are learned through the pooled samples by a contrastive loss. Average pooling (GAP) mixes the
background into every embedding; sum pooling (GSP) can leave it out. Validation and test samples are
fresh draws from the same classes. Both methods start from the same tokens and see the same samples.

Two hulls of each class are measured on the test samples: that of its embeddings, and that of its
active tokens, from which its embeddings are composed, the class hull of [thesis, fig. 4.3].

Cost: about 2 minutes on one core, all seeds trained at once. Expected over 5 seeds:
MAP@R 0.66 ± 0.05 with GAP and 0.99 ± 0.00 with GSP; the token hulls of all pairs of classes meet
with GAP, those of 3 ± 4 % with GSP. See docs/results/tokens/README.md, and ``sumpool study
margins`` for what the outcome depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from sumpool.studies.shared.hulls import convex_hull, hull_overlap, meeting_pairs, pack_hulls
from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.token_problem import TokenSettings, map_at_r
from sumpool.studies.shared.token_training import METHODS, Outcome, pool_samples, train
from sumpool.system.rows import ResultStore, Row
from sumpool.system.threads import one_thread

#: Reduced settings for quick mode.
QUICK: dict[str, Any] = {"epoch_batches": 25, "max_epochs": 20}


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
) -> list[Row]:
    """Run the study into ``out_dir``; see :class:`~sumpool.studies.shared.study.RunStudy`."""
    settings = TokenSettings(**(QUICK if quick else {}))
    store = ResultStore(out_dir, "tokens", asdict(settings), force=force)
    return fill(store, settings, seed_range(seeds, quick), {}, progress=progress)


def fill(
    store: ResultStore,
    settings: TokenSettings,
    seeds: Sequence[int],
    tag: dict[str, Any],
    *,
    progress: bool,
) -> list[Row]:
    """Train the cells of METHODS × ``seeds`` missing from ``store`` and return the rows of all."""
    rows = []
    for method in METHODS:
        cells = {seed: {"method": method, **tag, "seed": seed} for seed in seeds}
        missing = [seed for seed, cell in cells.items() if store.find(cell) is None]
        if missing:
            name = " ".join([method, *(f"{key} {value}" for key, value in tag.items())])
            for outcome in _train_with_bar(settings, method, missing, name, progress):
                metrics, arrays = measure(settings, outcome)
                metrics["seeds_together"] = len(missing)
                store.add(cells[outcome.seed], metrics, outcome.duration_s, arrays)
        for cell in cells.values():
            row = store.find(cell)
            assert row is not None
            rows.append(row)
    return rows


def measure(
    settings: TokenSettings, outcome: Outcome
) -> tuple[dict[str, float], dict[str, NDArray[Any]]]:
    """Return the metrics of one seed's outcome and the arrays for its figure."""
    with torch.no_grad():
        embeddings, weights = pool_samples(outcome.learned, outcome.test, settings.mu, settings.eps)
    labels = settings.labels(settings.test_per_class)
    of_class = outcome.test < settings.classes * settings.own
    overlap = hull_overlap(embeddings[0].double().numpy(), labels.numpy())
    active = active_tokens(settings, outcome.test[0], weights[0])
    tokens = outcome.learned.tokens[0]
    token_hulls = [convex_hull(tokens[row].double().numpy()) for row in active]
    metrics = {
        "map_at_r": float(map_at_r(embeddings, labels)),
        "validation_map_at_r": max(outcome.history),
        "samples_inside_others": overlap.samples_inside_others,
        "hull_overlap": overlap.mean_overlap,
        "overlapping_pairs": overlap.overlapping_pairs,
        "meeting_pairs": meeting_pairs(token_hulls),
        "class_weight": float((weights * of_class).sum(-1).mean()),
        "best_epoch": outcome.best_epoch,
        "epochs": len(outcome.history),
    }
    prototypes = outcome.learned.prototypes
    arrays = {
        "tokens": tokens.numpy(),
        "prototypes": np.empty((0, 2)) if prototypes is None else prototypes[0].numpy(),
        "embeddings": embeddings[0].numpy(),
        "labels": labels.numpy(),
        **pack_hulls("hull", overlap.hulls),
        **pack_hulls("token_hull", token_hulls),
        "history": np.array(outcome.history),
    }
    return metrics, arrays


def active_tokens(settings: TokenSettings, samples: Tensor, weights: Tensor) -> Tensor:
    """Return the tokens that compose the embeddings of each class, a boolean mask (classes, T).

    True where the mean weight of a token in the samples of a class is at least the share
    ``settings.active`` of an equal weight. ``samples`` are token indices (B, n), with ``weights``.
    """
    by_token = weights.new_zeros(len(samples), settings.tokens).scatter_add(1, samples, weights)
    mean = by_token.view(settings.classes, -1, settings.tokens).mean(1)  # (classes, T)
    return mean >= settings.active / (settings.own + settings.shared)


def _train_with_bar(
    settings: TokenSettings, method: str, seeds: Sequence[int], name: str, progress: bool
) -> Iterator[Outcome]:
    with (
        one_thread(),  # the tensors are small
        tqdm(total=settings.max_epochs, desc=name, unit="epoch", disable=not progress) as bar,
    ):

        def on_epoch(best: float, learning: int) -> None:
            bar.set_postfix_str(f"best MAP@R {best:.3f}, {learning} learning", refresh=False)
            bar.update()

        yield from train(settings, method, seeds, on_epoch)
