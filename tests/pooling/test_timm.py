"""The layers stand in for timm's poolings: models with them train."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sumpool import GeneralizedSumPool1d, GeneralizedSumPool2d

timm = pytest.importorskip("timm", reason="timm is an optional extra")

CLASSES = 5


def resnet() -> tuple[nn.Module, nn.Module, Tensor]:
    model = timm.create_model("resnet18", num_classes=CLASSES)
    model.global_pool = GeneralizedSumPool2d(model.num_features, prototypes=4)
    return model, model.global_pool, torch.randn(2, 3, 64, 64)


def convnext() -> tuple[nn.Module, nn.Module, Tensor]:
    model = timm.create_model("convnext_atto", num_classes=CLASSES)
    # Its head normalizes (B, C, 1, 1) before it flattens.
    pool = GeneralizedSumPool2d(model.num_features, prototypes=4, flatten=False)
    model.head.global_pool = pool
    return model, pool, torch.randn(2, 3, 64, 64)


def swin() -> tuple[nn.Module, nn.Module, Tensor]:
    model = timm.models.SwinTransformer(
        img_size=32,
        window_size=4,
        embed_dim=24,
        depths=(1, 1),
        num_heads=(2, 4),
        num_classes=CLASSES,
    )
    pool = GeneralizedSumPool2d(model.num_features, prototypes=4, input_fmt="NHWC")
    model.head.global_pool = pool
    return model, pool, torch.randn(2, 3, 32, 32)


def tiny_vit() -> nn.Module:
    return timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=2, num_classes=CLASSES
    )


def vit() -> tuple[nn.Module, nn.Module, Tensor]:
    model = tiny_vit()
    # timm cuts the prefix off before attention pooling.
    model.attn_pool = GeneralizedSumPool1d(model.num_features, prototypes=4)
    return model, model.attn_pool, torch.randn(2, 3, 32, 32)


def vit_with_prefix() -> tuple[nn.Module, nn.Module, Tensor]:
    model = tiny_vit()
    model.pool_include_prefix = True  # leaves it to the pooling
    pool = GeneralizedSumPool1d(
        model.num_features, prototypes=4, num_prefix_tokens=model.num_prefix_tokens
    )
    model.attn_pool = pool
    return model, pool, torch.randn(2, 3, 32, 32)


MODELS = [resnet, convnext, swin, vit, vit_with_prefix]


@pytest.mark.parametrize("build", MODELS)
def test_a_model_trains_one_step(build) -> None:
    model, pool, images = build()
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logits = model(images)
    assert logits.shape == (2, CLASSES)
    nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    initial = pool.prototypes.detach().clone()
    assert (pool.prototypes.grad != 0).any()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    optimizer.step()
    assert not torch.equal(pool.prototypes, initial)
    model.eval()
    assert model(images).isfinite().all()


@pytest.mark.parametrize("build", [vit, vit_with_prefix])
def test_a_vit_pools_its_patches_and_nothing_else(build) -> None:
    model, pool, images = build()
    model.eval()
    seen = []
    pool.register_forward_pre_hook(lambda _, inputs: seen.append(pool.pool(*inputs).weights))
    model(images)
    assert seen[0].shape == (2, 16)


def test_classifiers_can_be_reset_around_the_layer() -> None:
    model, pool, images = resnet()
    pool.initialize_prototypes(model.forward_features(images))
    model.fc = nn.Identity()
    assert model.eval()(images).shape == (2, model.num_features)
