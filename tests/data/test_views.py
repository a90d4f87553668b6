"""Train and test views, against torchvision and against their law."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from data.pictures import VIEWS, global_states, picture
from sumpool.data.views.boxes import DRAWS, central_boxes, random_boxes, view_draws
from sumpool.data.views.preprocessing import Preprocessing

AREA, ASPECT = (40**2, 256**2), (3 / 4, 4 / 3)
sides = st.integers(1, 500)


def naive_box(height: int, width: int, draws: list[float]) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.make_params, with numbers given and the area in pixels."""
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    for turn in range(10):
        area = AREA[0] + (AREA[1] - AREA[0]) * draws[turn]
        aspect = math.exp(low + (high - low) * draws[10 + turn])
        w = round(math.sqrt(area * aspect))
        h = round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(draws[20] * (height - h + 1)), int(draws[21] * (width - w + 1)), h, w
    ratio = width / height
    h, w = height, width
    if ratio < ASPECT[0]:
        h = round(width / ASPECT[0])
    elif ratio > ASPECT[1]:
        w = round(height * ASPECT[1])
    return (height - h) // 2, (width - w) // 2, h, w


@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=8), st.integers(0, 1000))
def test_boxes_are_those_of_a_loop(sizes: list[tuple[int, int]], step: int) -> None:
    draws = view_draws(seed=0, step=step, first=0, count=len(sizes))
    boxes = random_boxes(np.array(sizes), draws, AREA, ASPECT)
    expected = [naive_box(*size, row) for size, row in zip(sizes, draws.tolist(), strict=True)]
    assert boxes.tolist() == [list(box) for box in expected]
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= np.array(sizes)).all()


@pytest.mark.parametrize("size", [(256, 341), (300, 256), (60, 80), (256, 1000)])
def test_boxes_have_the_law_of_torchvision(size: tuple[int, int]) -> None:
    count, pixels = 1000, size[0] * size[1]
    draws = view_draws(seed=1, step=0, first=0, count=count)
    ours = random_boxes(np.tile(size, (count, 1)), draws, AREA, ASPECT)
    theirs = v2.RandomResizedCrop(227, (AREA[0] / pixels, AREA[1] / pixels), ASPECT)
    image = [torch.empty(3, *size)]
    drawn = [list(theirs.make_params(image).values()) for _ in range(count)]
    for mine, other in zip(ours.T, np.array(drawn).T, strict=True):
        assert scipy.stats.ks_2samp(mine, other).pvalue > 1e-3


def test_area_is_uniform_and_aspect_log_uniform_where_all_boxes_fit() -> None:
    draws = view_draws(seed=2, step=0, first=0, count=4000)
    boxes = random_boxes(np.full((4000, 2), 400), draws, AREA, ASPECT)
    area = boxes[:, 2] * boxes[:, 3]
    assert scipy.stats.kstest(area, "uniform", (AREA[0], AREA[1] - AREA[0])).pvalue > 1e-3
    aspect = np.log(boxes[:, 3] / boxes[:, 2])[area > 20000]  # less rounding to pixels
    spread = 2 * math.log(4 / 3)
    assert scipy.stats.kstest(aspect, "uniform", (-spread / 2, spread)).pvalue > 1e-3


def test_shares_of_the_area_are_those_of_the_whole_image() -> None:
    sizes = np.array([[256, 256], [256, 512], [400, 256]]).repeat(3000, 0)
    draws = view_draws(seed=2, step=0, first=0, count=len(sizes))
    views = replace(VIEWS, area_share=(0.1, 0.4))
    boxes, _ = views.train_boxes(sizes, draws)
    shares = (boxes[:, 2] * boxes[:, 3] / sizes.prod(1)).reshape(3, -1)
    for own in shares:
        assert scipy.stats.kstest(own, "uniform", (0.1, 0.3)).pvalue > 1e-3
    theirs = v2.RandomResizedCrop(227, (0.16, 1.0), ASPECT)
    image = [torch.empty(3, 300, 256)]
    drawn = [list(theirs.make_params(image).values()) for _ in range(3000)]
    whole = replace(VIEWS, area_share=(0.16, 1.0))
    ours, _ = whole.train_boxes(np.tile((300, 256), (3000, 1)), draws[:3000])
    for mine, other in zip(ours.T, np.array(drawn).T, strict=True):
        assert scipy.stats.ks_2samp(mine, other).pvalue > 1e-3
    assert Preprocessing.from_dict(whole.to_dict()) == whole


@pytest.mark.parametrize("share", [(0.0, 1.0), (0.5, 0.2), (0.5, 1.5)])
def test_shares_that_no_box_has_are_refused(share: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"area_share must lie in \(0, 1\] and be in order"):
        Preprocessing(area_share=share)


def test_a_view_depends_on_its_position_alone() -> None:
    whole = view_draws(seed=5, step=9, first=0, count=32)
    assert (view_draws(seed=5, step=9, first=8, count=4) == whole[8:12]).all()
    assert len(np.unique(whole)) == whole.size
    for other in (view_draws(6, 9, 0, 32), view_draws(5, 10, 0, 32)):
        assert not np.isin(other, whole).any()


@given(st.integers(30, 200), st.integers(30, 200))
def test_test_view_is_torchvisions(height: int, width: int) -> None:
    image = picture(height, width)
    theirs = v2.Compose([v2.Resize(48), v2.CenterCrop(40), v2.PILToTensor()])
    assert torch.equal(VIEWS.test_view()(image), theirs(image))


@given(st.integers(30, 200), st.integers(30, 200), st.integers(0, 100))
def test_train_view_is_torchvisions_resized_crop(height: int, width: int, step: int) -> None:
    image = picture(height, width)
    (draws,) = view_draws(seed=0, step=step, first=0, count=1)
    small = v2.Resize(48)(image)
    (box,) = random_boxes(np.array([[small.height, small.width]]), draws[None], VIEWS.area, ASPECT)
    expected = F.resized_crop(F.pil_to_tensor(small), *box.tolist(), size=[40, 40], antialias=True)
    if draws[22] < 0.5:
        expected = expected.flip(-1)
    got = VIEWS.train_pixels(image, draws)
    assert got.dtype == torch.uint8
    assert (got.int() - expected.int()).abs().max() <= 1  # Pillow's rounding against torch's


def test_train_views_can_be_smaller_than_test_views() -> None:
    image, smaller = picture(60, 90), replace(VIEWS, train_crop=24)
    (draws,) = view_draws(seed=0, step=3, first=0, count=1)
    assert smaller.train_pixels(image, draws).shape == (3, 24, 24)
    assert torch.equal(smaller.test_pixels(image), VIEWS.test_pixels(image))
    sizes = np.array([[48, 72]])
    for one, other in zip(
        smaller.train_boxes(sizes, draws[None]), VIEWS.train_boxes(sizes, draws[None]), strict=True
    ):
        assert (one == other).all()  # the same part of the image


def test_half_of_the_train_views_are_mirrored() -> None:
    draws = view_draws(seed=0, step=0, first=0, count=4000)
    _, flips = VIEWS.train_boxes(np.full((4000, 2), 48), draws)
    assert abs(flips.mean() - 0.5) < 0.03
    _, flips = replace(VIEWS, flip=False).train_boxes(np.full((4000, 2), 48), draws)
    assert not flips.any()


def test_train_view_is_a_torchvision_transform_of_the_global_generator() -> None:
    view, image = v2.Compose([VIEWS.train_view(), v2.ToDtype(torch.float32)]), picture(60, 80)
    first = view(image)
    assert first.shape == (3, 40, 40)
    assert not torch.equal(view(image), first)
    torch.manual_seed(0)
    assert torch.equal(view(image), first)


@pytest.mark.parametrize("resize", [None, 32])
def test_small_images_are_shown_whole(resize: int | None) -> None:
    image = picture(32, 32)
    views = Preprocessing(resize=resize, crop=32, augment="none", flip=False)
    for view in (views.train_view(), views.test_view()):
        assert torch.equal(view(image), F.pil_to_tensor(image))


def test_small_images_are_enlarged_where_asked() -> None:
    views = Preprocessing(resize=64, crop=64, augment="none")
    expected = F.pil_to_tensor(F.resize(picture(32, 32), [64]))
    assert torch.equal(views.test_view()(picture(32, 32)), expected)


def test_an_image_below_the_crop_is_refused() -> None:
    with pytest.raises(ValueError, match="crop must be at most the sides of the image, 32 × 48"):
        Preprocessing(resize=None, crop=40).test_view()(picture(32, 48))
    with pytest.raises(ValueError, match="32 × 48"):
        central_boxes(np.array([[64, 64], [32, 48]]), 40)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
def test_normalize_is_torchvisions(dtype: torch.dtype) -> None:
    pixels = torch.randint(0, 256, (2, 3, 5, 7)).to(dtype)
    theirs = v2.Normalize(VIEWS.mean, VIEWS.std)
    got = VIEWS.normalize(pixels)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, theirs(pixels.float() / 255), rtol=1e-5, atol=1e-5)


def test_normalize_has_a_gradient_also_after_inference_mode() -> None:
    views = replace(VIEWS, mean=(0.1, 0.2, 0.3))
    with torch.inference_mode():
        views.normalize(torch.zeros(3, 2, 2))
    pixels = torch.zeros(3, 2, 2, requires_grad=True)
    views.normalize(pixels).sum().backward()
    expected = 1 / (255 * torch.tensor(views.std))
    torch.testing.assert_close(pixels.grad, expected.view(3, 1, 1).expand(3, 2, 2))


@pytest.mark.parametrize(
    "views",
    [
        Preprocessing(),
        Preprocessing(resize=None, crop=32, augment="none", flip=False),
        Preprocessing(resize=64, crop=60, area=(9, 100), aspect=(1, 1), std=(1, 2, 3)),
        Preprocessing(resize=np.int64(64), crop=np.int64(60), train_crop=np.int64(60)),
        Preprocessing(mean=np.float32([0.5] * 3), area_share=(np.float32(0.5), 1)),  # type: ignore[arg-type]
    ],
)
def test_settings_survive_json(views: Preprocessing) -> None:
    again = Preprocessing.from_dict(json.loads(json.dumps(views.to_dict())))
    assert again == views
    assert hash(again) == hash(views)


def test_default_boxes_are_in_proportion_to_the_resized_image() -> None:
    assert Preprocessing().area == (40**2, 256**2)
    assert Preprocessing(resize=64, crop=56).area == (10**2, 64**2)
    assert Preprocessing(resize=None, crop=32).area == (5**2, 32**2)


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"mean must be 3 numbers, got 0\.5"):
        Preprocessing(mean=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown settings 'rotate', 'blur'; known are resize, "):
        Preprocessing.from_dict({"crop": 200, "rotate": 3, "blur": 1})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"crop": 0}, "crop must be at least 1, got 0"),
        ({"crop": 300}, "resize must be None or at least crop 300, got 256"),
        ({"train_crop": 0}, "train_crop must be None or at least 1, got 0"),
        (
            {"train_crop": 64, "augment": "none"},
            "train_crop must be None or crop, 227, with augment 'none', got 64",
        ),
        ({"std": (1, 0, 1)}, r"std must be positive, got \(1, 0, 1\)"),
        ({"mean": (0.5,)}, r"mean must be 3 numbers, got \(0.5,\)"),
        ({"augment": "mixup"}, "augment must be one of crop, none, got 'mixup'"),
        ({"area": (0, 9)}, r"area must be positive and in order, got \(0, 9\)"),
        ({"aspect": (2, 1)}, r"aspect must be positive and in order, got \(2, 1\)"),
        ({"area": (1, 300**2)}, r"area must not exceed resize², 65536, got \(1, 90000\)"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Preprocessing(**settings)


@pytest.mark.parametrize("crop", [None, True, 227.0, "227"])
def test_a_side_that_is_no_integer_is_named(crop: object) -> None:
    with pytest.raises(TypeError, match=f"crop must be an integer, got {crop!r}"):
        Preprocessing(crop=crop)  # type: ignore[arg-type]


def test_views_with_numbers_given_leave_global_random_states_alone() -> None:
    before = global_states()
    VIEWS.train_pixels(Image.new("RGB", (60, 60)), np.full(DRAWS, 0.5))
    assert global_states() == before
