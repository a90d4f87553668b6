"""A backbone is cut where it runs its blocks one after the other, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from models.tiny import embedder, images
from sumpool.models import ModelError
from sumpool.models.frozen import cut


@pytest.mark.parametrize("values", [{}, {"backbone": "test_resnet", "crop": 64}], ids=str)
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_the_parts_give_what_the_whole_gives(values: dict[str, object], blocks: int) -> None:
    model = embedder(**values).eval()
    frozen, learned, _ = cut(model, blocks)
    torch.testing.assert_close(learned(frozen(images(model))), model(images(model)))


def test_every_weight_of_the_backbone_is_in_one_part() -> None:
    model = embedder()
    frozen, learned, _ = cut(model, 2)
    parts = [[id(it) for it in part.parameters()] for part in (frozen, learned.backbone)]
    assert not set(parts[0]) & set(parts[1])
    assert {*parts[0], *parts[1]} == {id(it) for it in model.backbone.parameters()}


def test_the_digest_is_that_of_the_frozen_part_alone() -> None:
    model = embedder()
    before = [cut(model, blocks).digest for blocks in (0, 1, 2)]
    assert len(set(before)) == 3
    with torch.no_grad():
        next(cut(model, 1).learned.backbone.parameters()).add_(1)
    after = [cut(model, blocks).digest for blocks in (0, 1, 2)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, True]


def test_looking_for_the_cut_leaves_the_mode_as_it_was() -> None:
    for mode in (True, False):
        assert cut(embedder().train(mode), 1).learned.training is mode


@pytest.mark.parametrize(
    "values", [{"backbone": "test_vit", "crop": 64}, {"backbone": "xcit_nano_12_p16_224"}], ids=str
)
def test_what_does_not_run_in_one_line_cannot_be_cut(values: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=r"learned_blocks must be 0 with .*one after the other"):
        cut(embedder(**values), 1)


def test_more_blocks_than_there_are_are_refused() -> None:
    with pytest.raises(ModelError, match="learned_blocks must be below 10, the blocks of resnet20"):
        cut(embedder(), 10)
