"""What is known about a loss: constants by data set, and how it wants to be trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sumpool.losses.constants import Value

#: The data sets that the papers give constants for.
COLUMNS = ("cub", "cars196", "inshop", "sop")

#: The column that holds for data sets without one of their own.
DEFAULT_COLUMN = "cub"

#: Data sets that take the constants of the default column; "default" stands for any other.
_WITHOUT_COLUMN = (
    *("default", "cifar10", "cifar100", "mnist", "fashion-mnist"),
    *("folder", "csv", "parquet", "glyphs", "cifar-collage", "cifar-foreground", "cub-clutter"),
)
#: The column of the catalog for each data set. A name that is not here raises, so that a misspelled
#: one does not silently get constants of another.
DATASET_COLUMNS: Mapping[str, str] = {
    **{column: column for column in COLUMNS},
    **dict.fromkeys(_WITHOUT_COLUMN, DEFAULT_COLUMN),
}


@dataclass(frozen=True)
class LossRecipe:
    """One entry of the catalog.

    Attributes:
        name: Its key in ``LOSSES``.
        summary: What it is, in a line.
        reference: Its key in docs/references.md.
        table: Its constants by column, one of ``COLUMNS`` each.
        proxy: Whether it learns proxies.
        images_per_class: Images of a class in a batch.
        warmup_epochs: Epochs at the start that train the embedding layer and the proxies alone.
        proxy_lr_multiplier: Factor on the learning rate of the proxies, or of the boundaries.
        learning_rates: Learning rates by column where the protocol's does not hold.
        raw: Whether it takes embeddings as they are before normalization.

    Example:
        >>> from sumpool.losses import LOSSES
        >>> LOSSES["c2"].constants("cars196")["neg_margin"]
        0.5409
        >>> LOSSES["panchor"].lr("sop"), LOSSES["panchor"].lr("cub")
        (5e-06, None)
    """

    name: str
    summary: str
    reference: str
    table: Mapping[str, Mapping[str, Value]]
    proxy: bool = False
    images_per_class: int = 4
    warmup_epochs: int = 0
    proxy_lr_multiplier: float = 1.0
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    raw: bool = False

    def column(self, dataset: str) -> str:
        """The column that holds for ``dataset``: its own, or the default one."""
        if dataset not in DATASET_COLUMNS:
            raise ValueError(
                f"dataset must be one of {', '.join(DATASET_COLUMNS)} ('default' for any other), "
                f"got {dataset!r}"
            )
        return DATASET_COLUMNS[dataset]

    def constants(self, dataset: str) -> dict[str, Value]:
        """The constants for ``dataset``."""
        return dict(self.table[self.column(dataset)])

    def lr(self, dataset: str) -> float | None:
        """The learning rate for ``dataset``; None where the protocol's holds."""
        return self.learning_rates.get(self.column(dataset))
