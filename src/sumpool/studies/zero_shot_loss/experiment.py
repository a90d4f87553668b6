"""The zero-shot loss on collages: when it helps, when it hurts, and why.

    sumpool study zero-shot-loss              (glyphs: 40 minutes on two cores)
    sumpool study zero-shot-loss --data DIR   (CIFAR-100, 84 runs: for a GPU)

GSP is trained with variants of L_ZS: its weight λ and scale, its reduction over the halves of a
batch, how the classes are split into halves, the normalization of attributes and class embeddings,
and the learning rate of the latter. Besides retrieval, each cell measures how strongly L_ZS pulls
at the features, compared with the base loss, and where the pooling weight falls. The analysis is in
docs/zero-shot-loss.md, the numbers are in docs/results/zero-shot-loss-glyphs and, for CIFAR
collages, in docs/results/zero-shot-loss-h200: no variant gains more than its spread, and λ = 0.5
costs 10.1 ± 1.7 (C2) and 5.8 ± 0.7 points (PNCA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sumpool.data import ClassBatchSampler, ImageDataset, contiguous_labels
from sumpool.losses import Mixture
from sumpool.models import Embedder
from sumpool.studies.cells import CellResult
from sumpool.studies.shared.measuring import attribute_perplexity, open_images, result
from sumpool.studies.shared.pooling_study import pooling_study
from sumpool.studies.shared.testbed import Testbed, train_on
from sumpool.training import TrainConfig, ZeroShotConfig
from sumpool.training.assemble import build_criterion, build_model
from sumpool.training.gradient_balance import measure_gradient_norms
from sumpool.training.without_folder import Trained

#: Number of training batches on which the losses are compared.
BATCHES = 4

#: Twice the authors' loss: the sum of the halves with their factor on the logits.
_SUM = ZeroShotConfig(weight=0.5, reduction="sum")


def _variant(**options: Any) -> dict[str, Any]:
    return {"zero_shot": replace(_SUM, **options)}


#: Options that each variant changes from GSP without the zero-shot loss.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "λ .5": _variant(),
    "λ .5, mean (authors)": _variant(reduction="mean"),
    "λ .5, halves by label": _variant(halves="label"),
    "λ .1": _variant(weight=0.1),
    "λ .02": _variant(weight=0.02),
    "λ .002": _variant(weight=0.002),
    "balance .7": _variant(balance=0.7),
    "λ .1, scale 1": _variant(weight=0.1, scale=1.0),
    "λ .1, unit": _variant(weight=0.1, unit=True),
    "λ .1, unit, Υ × 30": _variant(weight=0.1, unit=True, lr_multiplier=30.0),
    "λ .004, standardized, unit": _variant(weight=0.004, standardize=True, unit=True),
    "λ .02, standardized, unit": _variant(weight=0.02, standardize=True, unit=True),
    "λ .02, standardized, unit, Υ × 30": _variant(
        weight=0.02, standardize=True, unit=True, lr_multiplier=30.0
    ),
}


def variants_of(testbed: Testbed, quick: bool) -> list[dict[str, Any]]:
    """Return the variants, at the rate that preserves pretrained features; three if ``quick``."""
    chosen = list(VARIANTS)[:3] if quick else VARIANTS
    return [{"variant": variant, "lr": testbed.rates[-1]} for variant in chosen]


def train_variant(testbed: Testbed, cell: dict[str, Any]) -> CellResult:
    """Train and evaluate one cell."""
    trained = train_on(testbed, variant_config(testbed.config, cell))
    dataset = trained.splits.train
    found = diagnose(trained.model, trained.criterion, trained.config, dataset)
    begun = diagnose(*_untrained(trained), trained.config, dataset)
    found |= {f"start_{name}": value for name, value in begun.items()}
    return result(trained, more=found)


def variant_config(config: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a cell."""
    return replace(
        config,
        pool="gsp",
        loss=cell["loss"],
        seed=cell["seed"],
        optimizer=replace(config.optimizer, lr=cell["lr"]),
        **VARIANTS[cell["variant"]],
    )


def diagnose(
    model: Embedder, criterion: nn.Module, config: TrainConfig, dataset: ImageDataset
) -> dict[str, float]:
    """Measure both losses and their gradients, averaged over some training batches.

    Returns:
        ``base_loss``; ``attribute_perplexity``, the number of prototypes in use, exp of the entropy
        of the mean attributes; and, with the zero-shot loss, ``zero_shot_loss``, its ``weight`` λ,
        and ``gradient_ratio``, ‖λ ∇L_ZS‖ / ‖(1 − λ) ∇L‖ with respect to the local features.
    """
    feed = open_images(model, dataset)
    labels, _ = contiguous_labels(dataset.labels)
    assert config.images_per_class is not None
    per_class = config.images_per_class
    sampler = ClassBatchSampler(labels, config.batch_size // per_class, per_class)
    model.eval()
    parts = []
    for step in range(BATCHES):
        (batch,) = feed.test_batches(sampler.batch(step), batch_size=config.batch_size)
        with torch.no_grad():
            features = model.feature_map(batch.images)
            if not model.pooling.prototypes_ready:
                model.pooling.initialize_prototypes(features)  # type: ignore[operator]
            parts.append(
                _pulls(model, criterion, features, labels[batch.indices].to(features.device))
            )
    return {name: sum(part[name] for part in parts) / BATCHES for name in parts[0]}


def _pulls(
    model: Embedder, criterion: nn.Module, features: Tensor, labels: Tensor
) -> dict[str, float]:
    pooled = model.pooling.pool(features)
    assert pooled.attributes is not None
    found = {"attribute_perplexity": attribute_perplexity(pooled.attributes)}
    if not isinstance(criterion, Mixture):
        return found | {"base_loss": criterion(model.embedding(pooled.embedding), labels).item()}
    pulls = measure_gradient_norms(
        model.pooling, criterion, features, labels, embed=model.embedding
    )
    return found | {
        "base_loss": pulls.base_loss,
        "zero_shot_loss": pulls.zero_shot_loss,
        "gradient_ratio": pulls.ratio(criterion.weight),
        "weight": criterion.weight,
    }


def _untrained(trained: Trained) -> tuple[Embedder, nn.Module]:
    """Return the model and the loss as they were before the first step."""
    config, device = trained.config, next(trained.model.parameters()).device
    classes = int(trained.splits.train.labels.unique().numel())
    criterion = build_criterion(config, classes, trained.splits.name)
    if isinstance(criterion, Mixture) and isinstance(trained.criterion, Mixture):
        criterion.weight = trained.criterion.weight  # with balance, it is set in training
    return build_model(config).to(device), criterion.to(device)


run = pooling_study("zero-shot-loss", variants_of, train_variant, on_cub=False)
