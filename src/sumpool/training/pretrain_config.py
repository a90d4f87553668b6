"""Options of pretraining. Imports no torch, so that ``sumpool pretrain --help`` is quick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PretrainConfig:
    """Train a backbone for small images by classification.

    Args:
        data: folder with the images
        format: cifar10, cifar100, mnist, fashion-mnist or auto
        backbone: resnet20 or resnetv2_20
        epochs: passes over the training images
        batch_size: images per step
        lr: peak learning rate, which then falls along a cosine
        weight_decay: L2 penalty
        seed: seed of weights, order and views
        accelerator: auto, cpu or cuda
        check_counts: whether to check that the data has the published number of images
    """

    data: str
    format: str = "auto"
    backbone: str = "resnet20"
    epochs: int = 100
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 5e-4
    seed: int = 0
    accelerator: str = "auto"
    check_counts: bool = True
