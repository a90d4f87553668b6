"""Builders of the losses in the catalog, most of them pytorch-metric-learning classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pytorch_metric_learning import distances, losses
from torch import nn

from sumpool.losses.centers import CenterDistances
from sumpool.losses.contrastive import ContrastiveLoss
from sumpool.losses.distance import DirectDistance
from sumpool.losses.initial import PROXIES, initial_vectors
from sumpool.losses.intra_batch import IntraBatchLoss
from sumpool.losses.margin import MarginLoss
from sumpool.losses.memory import MemoryLoss
from sumpool.losses.metric_loss import proxy_rows
from sumpool.losses.reduction import REDUCERS


class Sizes(NamedTuple):
    """Sizes and options that a loss is built with, besides its constants."""

    num_classes: int
    embedding_size: int
    batch_size: int
    seed: int
    normalize: bool = True

    @property
    def proxy_arguments(self) -> dict[str, Any]:
        """Arguments of pytorch-metric-learning's proxy losses.

        The proxies start at 0, so that no random number is drawn; :func:`fill_proxies` sets them
        from the seed.
        """
        return {
            "num_classes": self.num_classes,
            "embedding_size": self.embedding_size,
            "weight_init_func": nn.init.zeros_,
        }

    @property
    def distance(self) -> DirectDistance:
        """Euclidean distance, of ℓ2-normalized vectors if ``normalize``."""
        return DirectDistance(normalize_embeddings=self.normalize)

    @property
    def similarity(self) -> Any:
        """Inner product, of ℓ2-normalized vectors if ``normalize``."""
        return distances.DotProductSimilarity(normalize_embeddings=self.normalize)


def _contrastive(pos_margin: float, neg_margin: float, reduction: str, distance: Any) -> Any:
    reducer = REDUCERS[reduction]()
    return ContrastiveLoss(pos_margin, neg_margin, distance=distance, reducer=reducer)


def _c1(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    return _contrastive(1.0, constants["margin"], constants["reduction"], sizes.similarity)


def _c2(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    margins = constants["pos_margin"], constants["neg_margin"]
    return _contrastive(*margins, constants["reduction"], sizes.distance)


def _proxy_nca_pp(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    return losses.NormalizedSoftmaxLoss(
        **sizes.proxy_arguments, distance=distances.CosineSimilarity(), **constants
    )


def _proxy_nca(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    # −s‖x − p‖² = 2s cos − 2s for unit vectors, and the −2s cancels in the softmax. ProxyNCALoss
    # computes the same, but drops images whose probability underflows.
    temperature = 1 / (2 * constants["softmax_scale"])
    return _proxy_nca_pp({"temperature": temperature}, sizes)


def _soft_triple(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    centers = constants["centers_per_class"]
    return losses.SoftTripleLoss(
        **sizes.proxy_arguments,
        centers_per_class=centers,
        la=constants["la"],
        gamma=constants["gamma"],
        margin=constants["margin"],
        weight_regularizer=CenterDistances(centers) if centers > 1 else None,
        weight_reg_weight=constants["reg_weight"],
    )


def _n_pair(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    # [npair] does not normalize embeddings.
    return losses.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False))


def _margin(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    return MarginLoss(sizes.num_classes, **constants, distance=sizes.distance)


def _intra_batch(constants: Mapping[str, Any], sizes: Sizes) -> Any:
    return IntraBatchLoss(sizes.num_classes, sizes.embedding_size, **constants, seed=sizes.seed)


# Any, since pytorch-metric-learning is untyped.
_Builder = Callable[[Mapping[str, Any], Sizes], Any]


def _with_memory(build: _Builder) -> _Builder:
    def build_with_memory(constants: Mapping[str, Any], sizes: Sizes) -> Any:
        return MemoryLoss(
            build(constants, sizes),
            sizes.embedding_size,
            constants["memory_batches"] * sizes.batch_size,
            start_step=constants["start_step"],
            batch_weight=constants["batch_weight"],
            memory_weight=constants["memory_weight"],
        )

    return build_with_memory


#: Builders of the catalog's losses by name, each called with the constants and sizes.
BUILDERS: Mapping[str, _Builder] = {
    "c1": _c1,
    "c2": _c2,
    # pytorch-metric-learning's default reduction is the mean of the non-zero terms.
    "triplet": lambda it, sizes: losses.TripletMarginLoss(**it, distance=sizes.distance),
    "ms": lambda it, sizes: losses.MultiSimilarityLoss(**it, distance=sizes.similarity),
    "panchor": lambda it, sizes: losses.ProxyAnchorLoss(**sizes.proxy_arguments, **it),
    "pnca": _proxy_nca_pp,
    "softtriple": _soft_triple,
    "xbm": _with_memory(_c1),
    "xbm-c2": _with_memory(_c2),
    "npair": _n_pair,
    "lifted": lambda it, sizes: losses.LiftedStructureLoss(**it, distance=sizes.distance),
    "proxynca": _proxy_nca,
    "circle": lambda it, _: losses.CircleLoss(m=it["margin"], gamma=it["gamma"]),
    "margin": _margin,
    "libc": _intra_batch,
}


#: Pair and triplet losses that also work without ℓ2 normalization.
WITHOUT_NORMALIZATION = ("c1", "c2", "triplet", "ms", "xbm", "xbm-c2", "lifted", "margin")


def fill_proxies(loss: nn.Module, sizes: Sizes) -> None:
    """Initialize the proxies of ``loss``, its only parameters, from the seed."""
    for proxies in loss.parameters():
        count = proxies.numel() // sizes.embedding_size
        drawn = initial_vectors(count, sizes.embedding_size, seed=sizes.seed, kind=PROXIES)
        with torch.no_grad():
            proxy_rows(loss, proxies).copy_(drawn)
