"""The zero-shot loss on collages: when it helps, when it hurts, and by what.

    sumpool study zero-shot-loss                           (glyphs: 25 minutes on two cores)
    sumpool study zero-shot-loss --data cifar-100-python   (minutes on an H200)
    sumpool study zero-shot-loss --quick

GSP is trained with variants of L_ZS: its weight λ, scale and ridge, how the classes of a batch are
split, how fast its class embeddings learn, when it counts. Besides retrieval each cell tells how
strongly it pulls at the features, compared with the base loss, and where the pooling weight falls.
The analysis is docs/zero-shot-loss.md, the numbers docs/results/zero-shot-loss-glyphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sumpool.data import open_feed
from sumpool.losses import Mixture
from sumpool.report.store import ResultStore, Row
from sumpool.studies.cells import CellResult, Trained, run_cells
from sumpool.studies.seeds import seed_range
from sumpool.studies.testbed import Testbed, open_testbed, result, train_on
from sumpool.training import TrainConfig, ZeroShotConfig
from sumpool.training.config import ConfigError

SEEDS = 3
LOSSES = ("c2", "pnca")

_PAPER = ZeroShotConfig(weight=0.5)


def _variant(**options: Any) -> dict[str, Any]:
    return {"zero_shot": replace(_PAPER, **options)}


#: What each variant changes of GSP without the zero-shot loss.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "λ .5 (papers)": _variant(),
    "λ .5, halves by label": _variant(halves="label"),
    "λ .1": _variant(weight=0.1),
    "λ .02": _variant(weight=0.02),
    "λ .002": _variant(weight=0.002),
    "λ .1, scale 1": _variant(weight=0.1, scale=1.0),
    "λ .1, unit": _variant(weight=0.1, unit=True),
    "λ .1, unit, Υ × 30": _variant(weight=0.1, unit=True, lr_multiplier=30.0),
    "λ .004, standardized, unit": _variant(weight=0.004, standardize=True, unit=True),
    "λ .02, standardized, unit": _variant(weight=0.02, standardize=True, unit=True),
    "λ .02, standardized, unit, Υ × 30": _variant(
        weight=0.02, standardize=True, unit=True, lr_multiplier=30.0
    ),
}


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
    data: Path | None = None,
    jobs: int | None = None,
    weights: Path | None = None,
) -> list[Row]:
    """Train what is missing of variants × losses × seeds; see :class:`RunStudy`.

    Args:
        out_dir: Folder of the results.
        seeds: How many seeds; None is 3.
        quick: Three variants, one loss, a few steps.
        progress: Show a bar.
        force: Discard stored results first.
        data: Folder of CIFAR-100; None is glyphs.
        jobs: Cells that run side by side; None is one a core.
        weights: A pretrained ResNet20; None pretrains one in the folder.
    """
    testbed = open_testbed(out_dir, data, quick=quick, weights=weights, progress=progress)
    if testbed.name == "CUB":
        raise ConfigError(f"data must be CIFAR-100, but {data} holds CUB")
    settings = {**testbed.settings(), "variants": list(VARIANTS)}
    store = ResultStore(out_dir, "zero-shot-loss", settings, force=force)
    cells = [
        {"variant": variant, "loss": loss, "lr": testbed.rates[-1], "seed": seed}
        for seed in seed_range(seeds, quick, SEEDS)
        for loss in (LOSSES[:1] if quick else LOSSES)
        for variant in (list(VARIANTS)[:3] if quick else VARIANTS)
    ]
    work = partial(train_variant, testbed)
    return run_cells(store, cells, work, jobs=jobs, progress=progress, description="zero-shot")


def train_variant(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and judge one cell."""
    trained = train_on(testbed, variant_config(testbed.config, cell))
    return result(trained, pictures=False, more=diagnose(trained))


def variant_config(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a cell."""
    return replace(
        config,
        pool="gsp",
        loss=cell["loss"],
        seed=cell["seed"],
        optimizer=replace(config.optimizer, lr=cell["lr"]),
        **VARIANTS[cell["variant"]],
    )


def diagnose(trained: Trained) -> dict[str, float]:
    """What the two losses are and how they pull, on one batch of training images.

    Returns:
        ``base_loss``; ``attribute_perplexity``, the number of prototypes in use, exp of the entropy
        of the mean attributes; and, with the zero-shot loss, ``zero_shot_loss`` and
        ``gradient_ratio``, ‖λ ∇L_ZS‖ / ‖(1 − λ) ∇L‖ with respect to the local features.
    """
    model, config = trained.model, trained.config
    device = next(model.parameters()).device
    feed = open_feed(
        trained.splits.train, model.preprocessing, cache="ram", device=device, progress=False
    )
    labels = trained.splits.train.labels
    # The same images of each class for every cell.
    chosen = torch.cat([(labels == it).nonzero()[:8, 0] for it in labels.unique()])
    (batch,) = feed.test_batches(chosen, batch_size=len(chosen))
    model.eval()
    with torch.no_grad():
        features = model.feature_map(batch.images)
    features.requires_grad_()
    pooled = model.pooling.pool(features)
    embeddings = torch.nn.functional.normalize(pooled.embedding, dim=-1)
    z = pooled.attributes
    assert z is not None
    use = z.detach().mean(0)
    perplexity = float(torch.exp(-(use * use.clamp_min(1e-30).log()).sum()))
    criterion = trained.criterion
    base = (criterion.base if isinstance(criterion, Mixture) else criterion)(
        embeddings, batch.labels
    )
    found = {"base_loss": base.item(), "attribute_perplexity": perplexity}
    if isinstance(criterion, Mixture):
        weight = config.zero_shot.weight or 0.0
        other = criterion.zero_shot(z, batch.labels)
        pull = torch.autograd.grad(base, features, retain_graph=True)[0].norm()
        other_pull = torch.autograd.grad(other, features)[0].norm()
        ratio = weight * other_pull / ((1 - weight) * pull).clamp_min(1e-12)
        found |= {"zero_shot_loss": other.item(), "gradient_ratio": ratio.item()}
    return found
