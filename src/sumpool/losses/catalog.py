"""The catalog of losses and their constants on each data set.

Constants come from [gsp] and [thesis], chapters 3 and 5. Those missing there come from the authors'
public code, and for the losses of [skew] from the papers that introduced them. docs/losses.md gives
the source of each; a test compares its tables with this catalog.
"""

from __future__ import annotations

from collections.abc import Mapping

from sumpool.losses.constants import Value
from sumpool.losses.recipe import COLUMNS, LossRecipe


def _everywhere(**constants: Value) -> dict[str, dict[str, Value]]:
    """The same constants on every data set."""
    return dict.fromkeys(COLUMNS, constants)


def _by_column(**constants: tuple[Value, Value, Value, Value]) -> dict[str, dict[str, Value]]:
    """Constants by column, from their values on CUB, Cars196, In-shop and SOP, in this order."""
    return {
        column: {name: values[place] for name, values in constants.items()}
        for place, column in enumerate(COLUMNS)
    }


def _merged(
    one: Mapping[str, Mapping[str, Value]], two: Mapping[str, Mapping[str, Value]]
) -> dict[str, dict[str, Value]]:
    return {column: {**one[column], **two[column]} for column in COLUMNS}


_C1 = _everywhere(margin=0.5, reduction="image-sum")

_C2 = _merged(
    _by_column(
        pos_margin=(0.0, 0.2652, 0.2858, 0.2858),
        neg_margin=(0.3841, 0.5409, 0.5130, 0.5130),
    ),
    _everywhere(reduction="nonzero-mean"),
)

_MEMORY = _merged(
    _by_column(memory_batches=(25, 25, 400, 1400)),
    _everywhere(start_step=1000, batch_weight=1.0, memory_weight=1.0),
)


def _proxy(
    name: str,
    summary: str,
    reference: str,
    table: Mapping[str, Mapping[str, Value]],
    learning_rates: Mapping[str, float] | None = None,
) -> LossRecipe:
    """Recipe of a proxy loss; all of them are trained in the same way."""
    return LossRecipe(
        name,
        summary,
        reference,
        table,
        proxy=True,
        images_per_class=1,
        warmup_epochs=1,
        proxy_lr_multiplier=100.0,
        learning_rates=learning_rates or {},
    )


_RECIPES = (
    LossRecipe("c1", "contrastive on cosines, positive pairs to 1", "contrastive", _C1),
    LossRecipe("c2", "contrastive on distances, with two margins", "margin-loss", _C2),
    LossRecipe(
        "triplet",
        "all triplets in the batch",
        "facenet",
        _by_column(margin=(0.0961, 0.1190, 0.0451, 0.0451)),
    ),
    LossRecipe(
        "ms",
        "multi-similarity",
        "multi-similarity",
        _by_column(
            alpha=(2.0, 14.35, 8.49, 2.0),
            beta=(40.0, 75.83, 57.38, 40.0),
            base=(0.5, 0.66, 0.41, 0.5),
        ),
    ),
    _proxy(
        "panchor",
        "ProxyAnchor",
        "proxy-anchor",
        _everywhere(margin=0.1, alpha=32.0),
        learning_rates={"sop": 5e-6},
    ),
    _proxy(
        "pnca",
        "ProxyNCA++, softmax of cosine / T over proxies",
        "proxyncapp",
        _everywhere(temperature=0.11),
    ),
    _proxy(
        "softtriple",
        "SoftTriple, several centers per class",
        "softtriple",
        _by_column(
            la=(20.0, 17.69, 20.0, 100.0),
            gamma=(0.1, 19.18, 0.1, 47.9),
            reg_weight=(0.2, 0.0669, 0.2, 0.2),
            margin=(0.01, 0.3588, 0.01, 0.3145),
            centers_per_class=(10, 10, 4, 4),
        ),
    ),
    LossRecipe("xbm", "cross-batch memory on C1", "xbm", _merged(_C1, _MEMORY)),
    LossRecipe("xbm-c2", "cross-batch memory on C2", "xbm", _merged(_C2, _MEMORY)),
    LossRecipe("npair", "N-pair", "npair", _everywhere()),
    LossRecipe("lifted", "lifted structure", "lifted", _everywhere(pos_margin=0.0, neg_margin=1.0)),
    _proxy("proxynca", "ProxyNCA", "proxynca", _everywhere(softmax_scale=1.0)),
    LossRecipe("circle", "circle", "circle", _everywhere(margin=0.4, gamma=80.0)),
    LossRecipe(
        "margin",
        "contrastive on distances, with a learned boundary per class",
        "margin-loss",
        _everywhere(alpha=0.2, beta=1.2, nu=0.0),
        proxy_lr_multiplier=100.0,
    ),
    LossRecipe(
        "libc",
        "intra-batch connections: classification alone and through a graph over the batch",
        "libc",
        _merged(
            _by_column(
                layers=(1, 2, 1, 1), heads=(2, 8, 4, 8), temperature=(0.2, 0.111, 0.186, 0.605)
            ),
            _everywhere(label_smoothing=0.1, dropout=0.1),
        ),
        learning_rates={"cub": 1.564e-4, "cars196": 3.668e-4, "inshop": 1.127e-4, "sop": 2.472e-4},
        raw=True,
    ),
)

#: The losses by name.
LOSSES: Mapping[str, LossRecipe] = {recipe.name: recipe for recipe in _RECIPES}
