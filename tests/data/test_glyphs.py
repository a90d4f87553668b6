"""Glyph collages: what is drawn, where, from what, and that classes are distinct."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray

from sumpool.data import DataError, GlyphCollages
from sumpool.data.synthetic import glyph_drawing, glyphs
from sumpool.data.synthetic.glyph_drawing import FACES, draw_glyph, faces_with, font_folder
from sumpool.data.synthetic.glyphs import DIGITS, LETTERS, SPLITS, TILE, split_of, tiles_of


@pytest.fixture(scope="module")
def collages() -> GlyphCollages:
    return GlyphCollages(split="all", images_per_class=3)


def shape_of(glyph: str, face: str, side: int = 40) -> NDArray[np.float64]:
    """The picture of a glyph, upright and in the middle, as a unit vector."""
    tile = draw_glyph(glyph, face, side, 0.8 * side, 0, side / 2, side / 2)
    flat = tile.astype(float).ravel()
    return flat / np.linalg.norm(flat)


def test_images_are_rgb_and_all_of_one_size(collages: GlyphCollages) -> None:
    image, label = collages[5]
    assert (image.mode, image.size, label) == ("RGB", (2 * TILE, 2 * TILE), 1)
    assert collages.pixels.dtype == np.uint8
    assert collages.pixels.shape == (3 * len(LETTERS), 2 * TILE, 2 * TILE, 3)
    assert collages.labels.dtype == collages.letter_tile.dtype == torch.int64
    assert np.array_equal(image, collages.pixels[5])


def test_transforms_are_applied() -> None:
    data = GlyphCollages(
        split="validation", images_per_class=1, transform=np.shape, target_transform=str
    )
    assert data[0] == ((2 * TILE, 2 * TILE, 3), str(int(data.labels[0])))


def test_splits_share_no_class_and_leave_out_none() -> None:
    parts = {split: {it for it in LETTERS if split_of(it) == split} for split in SPLITS}
    assert sum(map(len, parts.values())) == len(LETTERS) == len(set(LETTERS)) == 99
    assert {split: len(part) for split, part in parts.items()} == {
        "train": 53,
        "validation": 13,
        "test": 33,
    }
    for split, part in parts.items():
        data = GlyphCollages(split=split, images_per_class=2)
        assert Counter(data.class_names[it] for it in data.labels.tolist()) == dict.fromkeys(
            part, 2
        )


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("first", ["A", "Α", "А"])  # Latin, Greek, Cyrillic
def test_every_alphabet_is_in_every_split(split: str, first: str) -> None:
    block = {"A": range(0x250), "Α": range(0x370, 0x400), "А": range(0x400, 0x500)}[first]
    assert any(ord(it) in block and split_of(it) == split for it in LETTERS)


def test_an_image_depends_on_seed_letter_and_number_alone(collages: GlyphCollages) -> None:
    again = GlyphCollages(split="test", images_per_class=5)
    for index in (0, 6, 81):
        label, number = int(again.labels[index]), index % 5
        if number < 3:
            assert np.array_equal(again.pixels[index], collages.pixels[3 * label + number])
            assert again.letter_tile[index] == collages.letter_tile[3 * label + number]
            assert again.item_name(index) == collages.item_name(3 * label + number)


def test_no_two_images_are_the_same(collages: GlyphCollages) -> None:
    other = GlyphCollages(split="all", images_per_class=1, seed=1)
    drawn = [it.tobytes() for it in (*collages.pixels, *other.pixels)]
    assert len(set(drawn)) == len(drawn)


def test_names_are_those_of_letter_and_number(collages: GlyphCollages) -> None:
    assert collages.item_name(4) == "glyphs/B/0001"
    names = [collages.item_name(it) for it in range(len(collages))]
    assert len(set(names)) == len(names)


def test_one_tile_holds_the_letter_and_three_hold_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, str]] = []

    def record(glyph: str, face: str, *rest: Any) -> NDArray[np.uint8]:
        drawn.append((glyph, face))
        return draw_glyph(glyph, face, *rest)

    monkeypatch.setattr(glyphs, "draw_glyph", record)
    data = GlyphCollages(split="all", images_per_class=4)
    places = np.array([glyph for glyph, _ in drawn]).reshape(-1, 4)
    for label, tile, place in zip(data.labels, data.letter_tile, places, strict=True):
        assert place[tile] == LETTERS[label]
        assert all(it in DIGITS for it in np.delete(place, tile))
    # Places, digits and faces are drawn evenly: within 5 standard deviations.
    for counted in (
        Counter(data.letter_tile.tolist()),
        Counter(glyph for glyph, _ in drawn if glyph in DIGITS),
        Counter(face for glyph, face in drawn if glyph in DIGITS),
    ):
        share = counted.total() / len(counted)
        assert max(abs(count - share) for count in counted.values()) < 5 * share**0.5
    assert {face for _, face in drawn} == set(FACES)


def test_no_face_is_asked_for_a_glyph_it_lacks() -> None:
    for face in FACES:
        font = FT2Font(str(font_folder() / f"{face}.ttf"))
        for glyph in LETTERS + DIGITS:
            assert (face in faces_with(glyph)) == (font.get_char_index(ord(glyph)) != 0)
    assert all(len(faces_with(glyph)) >= 12 for glyph in LETTERS)
    assert all(len(faces_with(glyph)) == 16 for glyph in DIGITS)


def test_no_two_classes_have_the_same_shape() -> None:
    for face in ("DejaVuSans", "DejaVuSerif"):
        shapes = {it: shape_of(it, face) for it in LETTERS + DIGITS}
        alike = [
            (one, other)
            for one, other in combinations(shapes, 2)
            if shapes[one] @ shapes[other] > 0.97 and not (one in DIGITS and other in DIGITS)
        ]
        assert alike == []
    # The measure sees what it is meant to see.
    assert shape_of("A", "DejaVuSans") @ shape_of("А", "DejaVuSans") > 0.999
    assert shape_of("Θ", "DejaVuSans") @ shape_of("Ѳ", "DejaVuSans") > 0.97


def test_the_letter_alone_is_its_tile_of_the_collage() -> None:
    whole = GlyphCollages(split="validation", images_per_class=2, seed=3)
    alone = GlyphCollages(split="validation", images_per_class=2, seed=3, part="letter")
    assert torch.equal(alone.letter_tile, whole.letter_tile)
    assert torch.equal(alone.labels, whole.labels)
    for it, tile in enumerate(whole.letter_tile):
        row, column = divmod(int(tile), 2)
        rows, columns = (slice(TILE * at, TILE * (at + 1)) for at in (row, column))
        assert np.array_equal(alone.pixels[it], whole.pixels[it, rows, columns])
        assert np.array_equal(alone.pixels[it], tiles_of(whole.pixels[it])[tile])
    assert alone[0][0].size == (TILE, TILE)


@pytest.mark.parametrize(("x", "y"), [(20.0, 20.0), (14.0, 25.0)])
def test_a_glyph_stands_where_it_is_put(x: float, y: float) -> None:
    tile = draw_glyph("H", "DejaVuSans", 40, 20, 0, x, y)
    rows, columns = (np.flatnonzero(tile.max(axis) > 100) for axis in (1, 0))
    assert (rows[0] + rows[-1] + 1) / 2 == pytest.approx(y, abs=1)
    assert (columns[0] + columns[-1] + 1) / 2 == pytest.approx(x, abs=1)
    assert max(np.ptp(rows), np.ptp(columns)) + 1 == pytest.approx(20, abs=2)


def test_a_glyph_turns_counter_clockwise_about_its_middle() -> None:
    upright = draw_glyph("F", "DejaVuSans", 40, 24, 0, 20, 20).astype(int)
    turned = draw_glyph("F", "DejaVuSans", 40, 24, 90, 20, 20).astype(int)
    assert np.abs(turned - np.rot90(upright)).mean() < 1
    assert np.abs(turned - np.rot90(upright, -1)).mean() > 20


def test_a_data_set_crosses_to_another_process(collages: GlyphCollages) -> None:
    copy = pickle.loads(pickle.dumps(collages))
    assert np.array_equal(copy.pixels, collages.pixels)
    assert torch.equal(copy.subset([7]).labels, collages.labels[7:8])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("root", "somewhere"),
        ("split", "query"),
        ("part", "digits"),
        ("images_per_class", 0),
        ("seed", -1),
    ],
)
def test_a_bad_argument_is_named(argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{argument} must be .*{value}"):
        GlyphCollages(**{argument: value})


def test_missing_fonts_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for face in FACES[:-1]:
        (tmp_path / f"{face}.ttf").touch()
    monkeypatch.setattr(glyph_drawing, "font_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=rf"{tmp_path} lacks STIXGeneralBolIta\.ttf"):
        GlyphCollages(images_per_class=1)
