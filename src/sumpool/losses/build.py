"""Build a loss from its name in the catalog."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sumpool.losses.batch_checks import check_counts
from sumpool.losses.builders import BUILDERS, WITHOUT_NORMALIZATION, Sizes, fill_proxies
from sumpool.losses.catalog import LOSSES
from sumpool.losses.constants import Value, check_constant
from sumpool.losses.metric_loss import MetricLoss
from sumpool.losses.recipe import LossRecipe
from sumpool.transport.validation import check_seed


def build_loss(
    name: str,
    *,
    dataset: str = "cub",
    num_classes: int,
    embedding_size: int,
    batch_size: int = 32,
    seed: int = 0,
    normalize: bool = True,
    **overrides: Value,
) -> MetricLoss:
    """Build the loss ``name`` with the constants that the papers use on ``dataset``.

    Args:
        name: Key of ``LOSSES``.
        dataset: Key of ``DATASET_COLUMNS``: a data set of the papers, or one that uses the
            constants of the default column.
        num_classes: Number of training classes C; losses with parameters accept labels 0..C − 1.
        embedding_size: Length D of the embeddings.
        batch_size: Images per batch, the unit of a memory's size.
        seed: Seed of the initial parameters; the global random state is neither read nor changed.
        normalize: Whether to ℓ2-normalize embeddings. If False, c1, xbm and ms compare by inner
            product instead of cosine, and the other losses of ``WITHOUT_NORMALIZATION`` by the
            distance of unnormalized vectors, as embeddings inside the unit ball need.
        **overrides: Constants that replace those of the catalog.

    Returns:
        A module called as ``loss(embeddings, labels)``. Its ``settings`` record how it was built,
        ``proxy_parameters()`` returns the parameters with their own learning rate, and its
        ``state_dict`` holds everything needed to resume.

    Raises:
        ValueError: If a name or value is not accepted; the message says which are.

    Example:
        >>> import torch
        >>> loss = build_loss("c2", dataset="cars196", num_classes=98, embedding_size=16)
        >>> loss.settings["neg_margin"]
        0.5409
        >>> embeddings = torch.eye(4, 16, requires_grad=True)
        >>> loss(embeddings, torch.tensor([0, 0, 1, 1]))
        tensor(1.1490, grad_fn=<AddBackward0>)
        >>> build_loss("pnca", num_classes=98, embedding_size=16).proxy_parameters()[0].shape
        torch.Size([16, 98])
    """
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    recipe = LOSSES[name]
    constants = _constants(recipe, dataset, overrides)
    check_counts(num_classes=num_classes, embedding_size=embedding_size, batch_size=batch_size)
    if not normalize and name not in WITHOUT_NORMALIZATION:
        raise ValueError(
            f"normalize must be true with loss {name}, which is for unit vectors; it "
            f"may be false with {', '.join(WITHOUT_NORMALIZATION)}"
        )
    sizes = Sizes(
        int(num_classes), int(embedding_size), int(batch_size), check_seed(seed), normalize
    )
    loss = BUILDERS[name](constants, sizes)
    if recipe.proxy:
        fill_proxies(loss, sizes)
    settings = {
        "name": name,
        "dataset": dataset,
        "column": recipe.column(dataset),
        **constants,
        **sizes._asdict(),
    }
    checked_classes = sizes.num_classes if next(loss.parameters(), None) is not None else None
    return MetricLoss(loss, sizes.embedding_size, checked_classes, settings)


def _constants(
    recipe: LossRecipe, dataset: str, overrides: Mapping[str, Value]
) -> dict[str, Value]:
    constants = recipe.constants(dataset)
    for name, value in overrides.items():
        if name not in constants:
            accepted = ", ".join(constants) or "none"
            raise ValueError(f"{recipe.name} has no constant {name!r}; it has {accepted}")
        check_constant(recipe.name, name, value)
        # Numbers of NumPy become those of Python, so that the settings can be written as JSON.
        constants[name] = value.item() if isinstance(value, np.generic) else value
    return constants
