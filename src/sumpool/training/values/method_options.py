"""Groups of options that belong to a method: pooling, losses, proxies, centers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GspConfig:
    """Generalized sum pooling. Options left at null follow the data set and the loss.

    Args:
        prototypes: number m of prototypes (64; SOP and In-shop 128)
        mu: share μ of each image that is pooled, in (0, 1]; 1 is average pooling (0.3)
        eps: inverse smoothing ε; large selects sharply (5 with pair losses, 0.5 with proxy losses)
        average_steps: initial steps with average pooling, after which prototypes are picked among
            embeddings of images whatever init is, as in the authors' practice (--pool gsp, gmp+gsp
            or gemean+gsp)
        spread: instead of eps: share 1/(n Σp²) of the positions that the weights of an image cover,
            in (0, 1); ε is fitted to it on 256 training images when prototypes are set
        learn_eps: learn ε, starting from its initial value
        init: candidates for prototypes: local, the local features of the first batch, or image,
            average-pooled embeddings of images
        lr_multiplier: learning rate of prototypes, of queries and keys, and of the parameters of
            learn_eps, cost norm, share image and learn_mix, relative to that of the map
        cost: distance of a feature from a prototype: ball, the distance in the unit ball; cosine,
            1 − cos; or norm, 1 − cos minus a learned multiple of the relative norm of the feature
        share: fixed, the same μ for all images, or image, a μ predicted from the mean feature of
            each image, starting from mu
        mix: share α in [0, 1] of the weights p in (1 − α)/n + α p, by which features are pooled; 0
            is average pooling, null is 1
        learn_mix: learn α, starting from mix or 0.5
    """

    prototypes: int | None = None
    mu: float | None = None
    eps: float | None = None
    average_steps: int = 0
    spread: float | None = None
    learn_eps: bool = False
    init: Literal["local", "image"] = "local"
    lr_multiplier: float = 1.0
    cost: Literal["ball", "cosine", "norm"] = "ball"
    share: Literal["fixed", "image"] = "fixed"
    mix: float | None = None
    learn_mix: bool = False


@dataclass(frozen=True)
class ZeroShotConfig:
    """The cross-batch zero-shot loss.

    Args:
        weight: λ of (1 − λ) L + λ L_ZS; 0 disables it (0.1 with gsp, 0 with poolings that have no
            attributes)
        balance: instead of weight: λ is set on the first batch so that the gradient of the
            zero-shot loss at the local features is this many times that of the base loss; null uses
            weight
        scale: factor on its logits
        ridge: ridge penalty of its fit
        lr_multiplier: learning rate of its class embeddings, relative to that of the network
        unit: normalize its class embeddings to length 1
        standardize: center its attributes and scale them to a mean length of 1 before the fit
        halves: order in which the classes of a batch are assigned in turn to its halves: appearance
            (in the batch) or label
        reduction: mean of the losses of the halves, as in the authors' practice, or their sum, as
            in the papers, with a scale of 1 (mean)
        begin: first step with the loss
        end: first step without it again; null is never
    """

    weight: float | None = None
    balance: float | None = None
    scale: float = 9.5
    ridge: float = 0.05
    lr_multiplier: float = 1.0
    unit: bool = False
    standardize: bool = False
    halves: Literal["appearance", "label"] = "appearance"
    begin: int = 0
    end: int | None = None
    reduction: Literal["sum", "mean"] | None = None


@dataclass(frozen=True)
class CcpConfig:
    """Chance-constrained proxies.

    Args:
        enabled: train with chance-constrained proxies (--ccp for short): the loss (c1, c2, ms or
            triplet) compares images with proxies, which are redrawn from images whenever validation
            stops improving
        proxies: proxies per class (8; SOP and In-shop 4)
        candidates: images per class from which new proxies are picked; as many as proxies means
            random drawing (12; SOP and In-shop 7)
        pull: λ of the pull toward the weights of the last problem
        patience: validations without improvement after which a problem ends
        problems: maximum number of problems; 1 is plain training with proxies, null is no limit
        solution: start of the next problem: last, the last weights, as in the published algorithm;
            best, those of the best validation of the problem; or authors, the last weights, but
            pulled to the best and with proxies away from the best, as in the authors' code (last)
        views: views of the images from which proxies are picked: central, as in tests, or random,
            as in training and in the authors' code
        batch_weight: weight of the pairs inside the batch, in addition to those with proxies
        beta: distance β for counting violated pairs; training does not depend on it (the midpoint
            of the margins of c2, 0.5 with other losses)
        alpha: α of the bound on their share (half the difference of the margins of c2, or 0.5)
    """

    enabled: bool = False
    proxies: int | None = None
    candidates: int | None = None
    pull: float = 2e-4
    patience: int = 3
    problems: int | None = None
    solution: Literal["last", "best", "authors"] | None = None
    views: Literal["central", "random"] = "central"
    batch_weight: float = 0.0
    beta: float | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class CenterConfig:
    """The regularizer of class centers, chosen by --center-reg.

    Args:
        weight: factor on the regularizer, which is added to the loss
        lam: its γ, λ, K or s: how much the nearest, or the farthest, pairs count (that of the
            catalog, see docs/centers.md)
        subset: number of classes drawn at random in every step to represent all; null uses all
            classes up to 2048 centers, and that many centers if there are more
        momentum: with losses without proxies, whose centers are running means of embeddings: share
            of a center that is kept when its class is in the batch, in [0, 1) (0.9)
    """

    weight: float = 1.0
    lam: float | None = None
    subset: int | None = None
    momentum: float | None = None
