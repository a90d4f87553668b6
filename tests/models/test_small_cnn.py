"""The small network of the glyph collages."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from sumpool.models.small_cnn import SmallConvNet


@pytest.mark.parametrize(("side", "positions"), [(48, 6), (64, 8), (24, 3)])
def test_a_local_feature_stands_for_eight_pixels(side: int, positions: int) -> None:
    network = SmallConvNet(width=2)
    out = network(torch.randn(2, 3, side, side))
    assert out.shape == (2, network.num_features, positions, positions)
    assert network.num_features == 16


def test_a_local_feature_sees_37_pixels() -> None:
    network = SmallConvNet(width=2).eval()
    # Weights of one sign leave no unit dead: whatever a feature sees changes it.
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_()
    base = torch.zeros(1, 3, 96, 96)
    before = network(base)[0, :, 6, 6]
    seen = []
    for column in range(96):
        image = base.clone()
        image[..., column] = 1
        seen.append(not torch.equal(network(image)[0, :, 6, 6], before))
    touched = [column for column, hit in enumerate(seen) if hit]
    assert touched[-1] - touched[0] + 1 == len(touched) == 37


def test_the_layout_of_the_images_does_not_matter() -> None:
    network = SmallConvNet(width=4).eval()
    images = torch.randn(2, 3, 48, 48)
    plain = deepcopy(network.layers).to(memory_format=torch.contiguous_format)
    torch.testing.assert_close(network(images), plain(images))
    as_nhwc = images.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(network(as_nhwc), network(images))


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        SmallConvNet(width=0)
