"""Options of a training run: flat if users often set them, grouped otherwise.

Imports neither torch nor the catalogs, so that ``sumpool train --help`` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sumpool.training.values.method_options import CcpConfig as CcpConfig
from sumpool.training.values.method_options import CenterConfig as CenterConfig
from sumpool.training.values.method_options import GspConfig as GspConfig
from sumpool.training.values.method_options import ZeroShotConfig as ZeroShotConfig


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rates.

    Args:
        lr: learning rate (recipe best: 1e-4, for losses without proxies 3e-5; papers: 1e-5, or the
            value of the loss for this data set)
        weight_decay: L2 penalty; with adamw, decoupled weight decay
        beta1: decay of the first moment
        beta2: decay of the second moment
        embedding_lr_multiplier: learning rate of the linear map and the pooling, relative to that
            of the backbone
        proxy_lr_multiplier: learning rate of proxies, relative to that of the network (the value of
            the loss: 100 for proxy losses)
        warmup_epochs: initial epochs in which only the embedding layer and the proxies are trained
            (the value of the loss: 1 for proxy losses)
        plateau_patience: validations without improvement after which the rates are lowered; null
            never lowers them
        plateau_factor: factor by which they are lowered
        schedule: constant, or cosine, which lowers all rates to zero at stop.max_steps
        ema: decay of an exponential moving average of the weights, such as 0.999; the average is
            evaluated and kept, training continues with the weights themselves; null is none
        start_share: share of the initial weights in the model that is evaluated and kept, such as
            0.5, to preserve more of the pretrained network; null is 0, or the value of the recipe
            for few images
        restarts: steps at which training returns to the best model so far and continues with other
            rates
        restart_factor: these rates, relative to the initial ones
        name: adam, adamw (decoupled weight decay) or radam
    """

    lr: float | None = None
    weight_decay: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    embedding_lr_multiplier: float = 1.0
    proxy_lr_multiplier: float | None = None
    warmup_epochs: float | None = None
    plateau_patience: int | None = None
    plateau_factor: float = 0.5
    schedule: Literal["constant", "cosine"] = "constant"
    ema: float | None = None
    start_share: float | None = None
    restarts: list[int] = field(default_factory=list)
    restart_factor: float = 0.1
    name: Literal["adam", "adamw", "radam"] = "adam"


@dataclass(frozen=True)
class StopConfig:
    """When the model is validated, and when training ends.

    Args:
        validate_every: steps between validations (recipe best: a tenth of the run; papers: 100, SOP
            and In-shop 1000; a quarter of that with --ccp)
        patience: validations without improvement after which training ends (15; SOP and In-shop 10;
            60 with --ccp; none with keep last)
        max_steps: steps after which training ends at the latest (recipe best: 16 passes over the
            images, 50 to 3000 steps; papers: none, which leaves it to patience)
        monitor: validation metric that selects the best model
        keep: model to keep: best, that of the best validation, or last, that of the last step;
            with last, training never stops early
    """

    validate_every: int | None = None
    patience: int | None = None
    max_steps: int | None = None
    monitor: Literal["mean_average_precision_at_r", "precision_at_1", "r_precision"] = (
        "mean_average_precision_at_r"
    )
    keep: Literal["best", "last"] = "best"


@dataclass(frozen=True)
class HardwareConfig:
    """Devices, precision and compilation.

    Args:
        accelerator: auto, cpu, cuda
        devices: processes per node, one per device; the batch is split between them
        nodes: number of machines
        precision: 32-true, or bf16-mixed on hardware that supports it
        channels_last: on CUDA, store feature maps as NHWC, for faster convolutions
        compile: compile the network with torch.compile (with cuda_graph and cuda_step only the
            backbone)
        cuda_graph: record forward and backward pass of the network as CUDA graphs, to avoid the
            launch overhead of small networks (one CUDA device)
        cuda_step: record the whole step, including loss and optimizer, as one CUDA graph: the
            fastest way to train small networks (one CUDA device; losses c1, c2, pnca, alone or with
            the zero-shot loss)
        workers: processes that decode images with cache none; null is one per core, at most 16
    """

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    nodes: int = 1
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    channels_last: bool = True
    compile: bool = False
    cuda_graph: bool = False
    cuda_step: bool = False
    workers: int | None = None


@dataclass(frozen=True)
class TrainConfig:
    """Train an embedding and evaluate it on classes it has not seen.

    Args:
        data: folder, CSV or Parquet file with labeled images; none for glyphs, which are generated
        recipe: values of options that are not given: best, the best known ones; papers, those of
            the fair protocol; auto, as best, but on frozen features if there is no GPU. Steps
            and batches depend on the data. In Python, with_recipe applies one (best)
        minutes: time budget: training, including preparation, ends after this many minutes at the
            latest, and the cosine schedule with it; evaluation and report follow
        format: layout of the data: auto, folder, csv, parquet, cub, cars196, sop, inshop, cifar10,
            cifar100, mnist, fashion-mnist, glyphs, cifar-collage, cifar-foreground (made from
            CIFAR-100), cub-clutter (made from CUB)
        out: folder of the run; null creates one under runs/
        fold: class fold (1, 2, …) of the training part to validate on; null uses the validation
            part of the data, if any, or classes drawn at random
        folds: number of class folds
        validation: share of the classes held out for validation when no fold is given
        selection: images that select the model: validation, held-out classes, or test, the test set
            itself, as in older papers. With test all training classes are trained on; scores are
            then optimistic, and are marked "selected on the test set"
        test: at the end, evaluate the model on the test set, if there is one; with false, no test
            image is opened
        allow_outside: accept images of a CSV file that lie outside its folder
        skip_broken: skip unreadable images and report how many, instead of stopping
        cache: none decodes images as they are needed; ram and gpu decode all of them once, and crop
            and resize in batches on the device
        cache_dir: folder for feature maps, which runs share, and decoded images, which those with
            the same images do
        backbone: bn_inception, resnet20, resnetv2_20, resnet50_v1, small_cnn or any timm model
        backbone_options: further options of the network, such as output_stride 16 of timm models,
            for finer maps, or stages 2, which concatenates the maps of the last two stages
        weights: packaged (inside an installed package), none, timm (downloads), or a file (the
            first that the backbone has of packaged, timm, none)
        init: run, or folder of a saved model, whose weights training starts from: backbone, map and
            pooling, where they fit; weights and image sizes are then those of that model
        resize: shorter side of an image before cropping (the backbone's, usually 256)
        crop: side of the square that the network sees (the backbone's, usually 227)
        train_crop: side of the random views in training (that of crop); smaller ones make training
            faster and let tests see more detail
        augment: training views: crop, a random crop, or none, the central crop (the backbone's)
        crop_area: smallest and largest share of the whole image that a random crop covers, such as
            [0.16, 1] in the authors' practice; null is 40² to 256² pixels, for a shorter side of
            256
        flip: mirror half of the training views (the backbone's)
        erasing: share of the training views in which a random rectangle is blanked, 0.5 in the
            protocol libc
        embedding_size: length of the embedding
        pool: pooling: gap, gmp, gap+gmp, cbam, crow, delf, gemax, gemean, gsop, otp, solar, t-smk,
            netvlad, weldon, compact-bilinear, simpool, attention, salad, boq, efficient-probing,
            gsp, gmp+gsp, gemean+gsp, gsp-heads, gsp-keys, gsp-parts
        pool_options: options of other poolings, such as p of gemean
        pool_defaults: defaults for the options of cbam, otp, solar: papers, those of the papers
            that introduced them, or authors, those in the code of GSP's authors
        gsp: options of generalized sum pooling, alone or combined with gmp and gemean
        normalize: scale of embeddings v: l2, v/‖v‖, or ball, v/max(1, ‖v‖) (l2; with --ccp ball)
        map_init: initialization of the linear map: torch, its default; glorot, as in the authors'
            practice; orthogonal, which preserves more of the pretrained features; or principal, the
            principal axes of the features of training images, which preserve most
        freeze_batch_norm: keep the pretrained statistics of batch normalization
        freeze_batch_norm_affine: keep its scales and shifts as well, as in the authors' practice
        freeze_backbone: train only map, pooling and loss, on feature maps that are computed once
            and stored in cache_dir (~/.cache/sumpool): fast on a CPU
        frozen_views: with freeze_backbone, number of views computed per training image: the
            central one, and random ones
        learned_blocks: with freeze_backbone, number of last blocks of the backbone that are trained
            nevertheless, on top of the stored maps
        loss: c1, c2, triplet, ms, panchor, pnca, softtriple, xbm, xbm-c2, npair, lifted, proxynca,
            circle, margin, libc
        loss_options: constants of the loss that replace those of the catalog
        zero_shot: the zero-shot loss added to it
        ccp: chance-constrained proxies
        center_reg: regularizer that spreads the class centers, which are the proxies of the loss,
            or running means of embeddings if it has none: r1, r1-distance, r1-far, r2, r2-distance,
            r2-far, k-near, k-far, uniformface, mhe (none)
        center: options of --center-reg
        batch_size: images per step, over all processes
        images_per_class: images per class in a batch; 0 draws images of any class (4, proxy losses
            1)
        optimizer: the optimizer and its rates
        stop: validation and end of training
        hardware: devices, precision, compilation
        seed: seed of weights, batches and views
        checkpoint_seconds: minimum seconds between checkpoints, which are written after validations
            (with minutes, after any step)
        keep_checkpoints: keep the checkpoints of a finished run, which take most of its disk space
        gallery: at the end, store pictures for the report
    """

    data: str | None = None
    recipe: Literal["best", "papers", "auto"] | None = None
    minutes: float | None = None
    format: str = "auto"
    out: str | None = None
    fold: int | None = None
    folds: int = 4
    validation: float = 0.25
    selection: Literal["validation", "test"] = "validation"
    test: bool = True
    allow_outside: bool = False
    skip_broken: bool = False
    cache: Literal["none", "ram", "gpu"] = "none"
    cache_dir: str | None = None
    backbone: str = "tf_efficientnet_lite0"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    init: str | None = None
    resize: int | None = None
    crop: int | None = None
    train_crop: int | None = None
    augment: Literal["crop", "none"] | None = None
    crop_area: list[float] | None = None
    flip: bool | None = None
    erasing: float = 0.0
    embedding_size: int = 128
    pool: str = "gsp"
    pool_options: dict[str, Any] = field(default_factory=dict)
    pool_defaults: Literal["papers", "authors"] = "papers"
    gsp: GspConfig = field(default_factory=GspConfig)
    normalize: Literal["l2", "ball"] | None = None
    map_init: Literal["torch", "glorot", "orthogonal", "principal"] = "torch"
    freeze_batch_norm: bool = True
    freeze_batch_norm_affine: bool = False
    freeze_backbone: bool = False
    frozen_views: int = 4
    learned_blocks: int = 0
    loss: str = "c2"
    loss_options: dict[str, int | float | str] = field(default_factory=dict)
    zero_shot: ZeroShotConfig = field(default_factory=ZeroShotConfig)
    ccp: CcpConfig = field(default_factory=CcpConfig)
    center_reg: str | None = None
    center: CenterConfig = field(default_factory=CenterConfig)
    batch_size: int = 32
    images_per_class: int | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    seed: int = 0
    checkpoint_seconds: float = 30.0
    keep_checkpoints: bool = False
    gallery: bool = True
