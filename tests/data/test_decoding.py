"""Files of every kind become upright RGB images, or errors that name them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sumpool.data import BrokenImageError
from sumpool.data.sets.decoding import as_rgb, image_extensions, read_image

GREY = np.array([[0, 60], [128, 255]], dtype=np.uint8)


def saved(tmp_path: Path, image: Image.Image, name: str = "x.png", **options: Any) -> Image.Image:
    path = tmp_path / name
    image.save(path, **options)
    return read_image(path)


def test_rgb_is_kept_as_it_is(tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for name in ("x.png", "x.bmp", "x.tiff", "x.ppm", "x.tga"):
        assert np.array_equal(saved(tmp_path, Image.fromarray(values), name), values)


def test_grey_has_three_equal_channels(tmp_path: Path) -> None:
    image = saved(tmp_path, Image.fromarray(GREY))
    assert image.mode == "RGB"
    assert np.array_equal(image, GREY[..., None].repeat(3, -1))


def test_sixteen_bits_are_scaled_by_their_full_range(tmp_path: Path) -> None:
    deep = np.array([[0, 257, 128 * 257, 65535]], dtype=np.uint16)
    for name in ("x.png", "x.tiff"):
        image = saved(tmp_path, Image.fromarray(deep), name)
        assert np.asarray(image)[0, :, 0].tolist() == [0, 1, 128, 255]


def test_scaling_rounds_to_the_nearest() -> None:
    deep = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    image = as_rgb(Image.fromarray(deep))
    assert np.array_equal(np.asarray(image)[..., 0], np.rint(deep / 257).astype(np.uint8))


def test_integers_within_16_bits_are_read_and_others_refused(tmp_path: Path) -> None:
    image = saved(tmp_path, Image.fromarray(np.array([[0, 65535]], dtype=np.int32)), "x.tiff")
    assert np.asarray(image)[0, :, 0].tolist() == [0, 255]
    with pytest.raises(BrokenImageError, match=r"x\.tiff: .* must lie in 0\.\.65535, .*0\.\.65536"):
        saved(tmp_path, Image.fromarray(np.array([[0, 65536]], dtype=np.int32)), "x.tiff")


def test_images_much_longer_than_wide_are_refused(tmp_path: Path) -> None:
    assert saved(tmp_path, Image.new("RGB", (2, 400))).size == (2, 400)
    with pytest.raises(BrokenImageError, match=r"x\.png: of its 2 × 401 pixels, one side is more"):
        saved(tmp_path, Image.new("RGB", (2, 401)))


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenImageError, match=r"x\.tiff: pixels are floating-point"):
        saved(tmp_path, Image.fromarray(np.ones((2, 2), dtype=np.float32)), "x.tiff")


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    image = saved(tmp_path, Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "x.jpg")
    assert image.mode == "RGB"
    red, green, blue = np.asarray(image)[4, 4].tolist()
    assert red > 240
    assert green < 15
    assert blue < 15


def test_black_and_white_becomes_rgb(tmp_path: Path) -> None:
    image = saved(tmp_path, Image.fromarray(GREY).convert("1", dither=Image.Dither.NONE))
    assert np.asarray(image)[..., 0].tolist() == [[0, 0], [255, 255]]


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (3, 1), (200, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    for name in ("x.png", "x.webp", "x.tiff"):
        out = saved(tmp_path, image, name, **({"lossless": True} if name == "x.webp" else {}))
        assert np.asarray(out)[0].tolist() == [[200, 0, 0], [255, 255, 255], [127, 127, 127]]
    grey = saved(tmp_path, image.convert("LA"))
    assert np.asarray(grey)[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
def test_palettes_are_looked_up(tmp_path: Path, transparency: int | bytes) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 90, 80, 70, 1, 2, 3])
    image.putdata([0, 1, 2])
    colors = [[10, 20, 30], [90, 80, 70], [1, 2, 3]]
    assert np.asarray(saved(tmp_path, image))[0].tolist() == colors
    out = saved(tmp_path, image, transparency=transparency)
    assert np.asarray(out)[0].tolist() == [colors[0], [255, 255, 255], colors[2]]


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_come_upright(tmp_path: Path, name: str, orientation: int) -> None:
    upright = np.zeros((32, 48, 3), dtype=np.uint8)
    upright[:16, :16] = 255  # a white corner, upper left
    # As a camera held so would store it: the inverse of what the tag asks for.
    stored = {
        1: lambda it: it,
        2: lambda it: it[:, ::-1],
        3: lambda it: it[::-1, ::-1],
        4: lambda it: it[::-1],
        5: lambda it: it.swapaxes(0, 1),
        6: lambda it: np.rot90(it, 1),
        7: lambda it: it[::-1, ::-1].swapaxes(0, 1),
        8: lambda it: np.rot90(it, -1),
    }[orientation](upright)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = saved(tmp_path, Image.fromarray(np.ascontiguousarray(stored)), name, exif=exif)
    assert image.size == (48, 32)
    assert np.abs(np.asarray(image).astype(int) - upright).max() < 60
    assert image.getexif().get(0x0112, 1) == 1


@pytest.mark.parametrize("name", ["x.jpg", "x.webp"])
def test_reading_again_does_not_turn_an_image_whose_xmp_has_its_orientation(
    tmp_path: Path, name: str
) -> None:
    packet = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-'
        b'syntax-ns#"><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" '
        b'tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
    )
    once = saved(tmp_path, Image.new("RGB", (32, 48)), name, xmp=packet)
    assert once.size == (48, 32)
    assert read_image(once).size == (48, 32)


def test_unreadable_exif_does_not_cost_the_image(tmp_path: Path) -> None:
    image = saved(tmp_path, Image.new("RGB", (8, 8), "red"), "x.jpg", exif=b"Exif\0\0II*\0")
    assert image.size == (8, 8)


def test_the_first_frame_stands_for_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(read_image(tmp_path / "x.gif"))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.webp", "x.gif", "x.bmp", "x.tiff"])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_truncated_images_are_named(tmp_path: Path, name: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / name
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(BrokenImageError, match=rf"cannot read the image .*{name}: \S") as caught:
        read_image(path)
    assert name not in caught.value.reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"Hello, world!" * 40, "in none of the formats JPEG, PNG"),
        (b"\xff\xd8\xff\xe0" + bytes(200), r"\S"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), r"\S"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "in none of the formats"),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(content)
    with pytest.raises(BrokenImageError, match=rf"x\.jpg: .*{reason}"):
        read_image(path)


def test_a_pipe_is_no_image_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BrokenImageError, match=r"pipe\.png: it is no regular file"):
        read_image(tmp_path / "pipe.png")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenImageError, match=r"none\.png: No such file or directory"):
        read_image(tmp_path / "none.png")


def test_a_machine_out_of_handles_is_not_a_broken_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Image, "open", exhausted)
    (tmp_path / "x.png").touch()
    with pytest.raises(OSError, match="Too many open files"):
        read_image(tmp_path / "x.png")


def test_common_endings_are_those_of_images() -> None:
    assert {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif"} <= image_extensions()
    assert not {".eps", ".ps", ".pdf", ".mpg", ".txt", ".h5", ""} & image_extensions()
