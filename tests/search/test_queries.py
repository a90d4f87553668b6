"""Boxes of queries: where they lie in what the network sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from search.small_index import picture, small_model
from sumpool.search.queries import QueryError, box_mask, check_box, embed_query, view_of

MODEL = small_model("gap")  # 48 × 48 pixels of an image whose shorter side is 48
SIDE = MODEL.preprocessing.crop


def test_without_a_box_the_view_is_the_central_one() -> None:
    image = picture(0, (120, 60))
    seen = view_of(MODEL, image)
    expected = MODEL.preprocessing.test_pixels(image).permute(1, 2, 0).numpy()
    assert np.array_equal(np.asarray(seen.image), expected)


@pytest.mark.parametrize("size", [(120, 60), (60, 120), (200, 190)])
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
def test_the_window_moves_so_that_the_box_is_inside(size: tuple[int, int], place: float) -> None:
    width, height = size
    left, top = place * (width - 30), place * (height - 20)
    box = (left, top, left + 30, top + 20)
    view = view_of(MODEL, Image.new("RGB", size), box)
    assert view.box is not None
    for low, high, start, end in zip(
        view.box[:2], view.box[2:], view.window[:2], view.window[2:], strict=True
    ):
        assert 0 <= low < high <= SIDE
        assert end - start == pytest.approx(min(size), abs=3)  # sides are rounded
    # Back in the pixels of the image, the box is where it was.
    across, up = ((view.window[it + 2] - view.window[it]) / SIDE for it in (0, 1))
    assert view.box[0] * across + view.window[0] == pytest.approx(left, abs=0.01)
    assert view.box[3] * up + view.window[1] == pytest.approx(top + 20, abs=0.01)


def test_a_box_inside_the_central_view_does_not_move_it() -> None:
    image = Image.new("RGB", (120, 60))
    assert view_of(MODEL, image, (50, 20, 70, 40)).window == view_of(MODEL, image).window


def test_a_box_beyond_the_window_is_in_its_middle() -> None:
    view = view_of(MODEL, Image.new("RGB", (300, 60)), (100, 0, 300, 60))
    assert view.box == (0, 0, SIDE, SIDE)
    assert (view.window[0] + view.window[2]) / 2 == pytest.approx(200, abs=1)


def test_positions_belong_to_a_box_by_their_centers() -> None:
    mask = box_mask((10, 0, 31, 20), 40, (4, 4))  # centers at 5, 15, 25 and 35
    assert mask.int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_a_tiny_box_has_one_position() -> None:
    mask = box_mask((29, 29, 29.5, 29.5), 40, (4, 4))
    assert mask.nonzero().tolist() == [[2, 2]]


def test_a_box_is_cut_to_the_image() -> None:
    assert check_box((-5, 2, 900, 30), Image.new("RGB", (40, 50))) == (0, 2, 40, 30)


def test_a_part_is_pooled_alone() -> None:
    image = picture(0, (48, 48))
    other = image.copy()
    part = embed_query(MODEL, image, (0, 0, 24, 48))
    assert part.mask is not None
    assert part.weights is not None
    assert float(part.weights[~part.mask[0]].sum()) == 0
    assert np.allclose(part.vector, embed_query(MODEL, other, (0, 0, 24, 48)).vector)
    assert not np.allclose(part.vector, embed_query(MODEL, image).vector, atol=1e-3)


def test_an_image_smaller_than_the_view_is_refused() -> None:
    model = small_model("gap")
    model.preprocessing = replace(model.preprocessing, resize=None)
    with pytest.raises(QueryError, match="the image is too small, 20 × 20 pixels"):
        embed_query(model, Image.new("RGB", (20, 20)))
