"""Recipe of a loss: its constants by data set and its training settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sumpool.losses.constants import Value

#: The data sets that the papers give constants for.
COLUMNS = ("cub", "cars196", "inshop", "sop")

#: The column of data sets without their own.
DEFAULT_COLUMN = "cub"

#: Data sets that use the constants of the default column; "default" stands for any other data set.
_WITHOUT_COLUMN = (
    *("default", "cifar10", "cifar100", "mnist", "fashion-mnist"),
    *("folder", "csv", "parquet", "glyphs", "cifar-collage", "cifar-foreground", "cub-clutter"),
)
#: The column of each data set. Unknown names raise, so that a misspelled name does not silently get
#: the default constants.
DATASET_COLUMNS: Mapping[str, str] = {
    **{column: column for column in COLUMNS},
    **dict.fromkeys(_WITHOUT_COLUMN, DEFAULT_COLUMN),
}


@dataclass(frozen=True)
class LossRecipe:
    """A loss in the catalog.

    Attributes:
        name: Key in ``LOSSES``.
        summary: One-line description.
        reference: Key in docs/references.md.
        table: Constants by column, with the keys ``COLUMNS``.
        proxy: Whether the loss learns proxies.
        images_per_class: Images per class in a batch.
        warmup_epochs: Initial epochs that train only the embedding layer and the proxies.
        proxy_lr_multiplier: Learning rate factor of the proxies or boundaries.
        learning_rates: Learning rates by column, where they differ from the protocol's.
        raw: Whether the loss expects embeddings before normalization.

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
        """Return the column of ``dataset``: its own or the default column."""
        if dataset not in DATASET_COLUMNS:
            raise ValueError(
                f"dataset must be one of {', '.join(DATASET_COLUMNS)} ('default' for any other), "
                f"got {dataset!r}"
            )
        return DATASET_COLUMNS[dataset]

    def constants(self, dataset: str) -> dict[str, Value]:
        """Return the constants for ``dataset``."""
        return dict(self.table[self.column(dataset)])

    def lr(self, dataset: str) -> float | None:
        """Return the learning rate for ``dataset``; None for the protocol's."""
        return self.learning_rates.get(self.column(dataset))
