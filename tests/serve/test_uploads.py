"""Uploads are images within limits, and are kept while there is room."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from serve.conftest import BASE
from serve.small_index import drawing, png
from sumpool.search import Index
from sumpool.serve import Limits, build_app
from sumpool.serve.pictures import heat
from sumpool.serve.uploads import Upload, UploadError, Uploads, check_upload

LIMITS = Limits(upload_bytes=20_000, pixels=10_000, kept_bytes=20_000)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that claims to be large."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 4096)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_common_formats_are_accepted(format: str) -> None:
    content = encoded(drawing(0, 1), format)
    upload = check_upload(content, LIMITS)
    assert (upload.width, upload.height) == (48, 40)
    assert upload.image().size == (48, 40)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the upload is empty"),
        (b"\0" * 20_001, "20,001 bytes, at most 20,000 are accepted"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "in none of the formats JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "in none of the formats JPEG"),
        (encoded(Image.new("RGB", (9, 9)), "TIFF"), "in none of the formats JPEG"),
        (png(drawing(0, 1))[:900], "damaged"),
        (bomb(101, 100), "too many pixels, at most 10,000"),
        (bomb(10_000, 10_000), "too many pixels"),
        (bomb(60_000, 60_000), "too many pixels"),
        (bomb(90, 90), "damaged"),
        (bomb(2, 401), "too narrow, its longer side may have 200 times"),
    ],
)
def test_others_are_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(UploadError, match=message) as caught:
        check_upload(content, LIMITS)
    assert "\n" not in str(caught.value)


def test_a_long_narrow_image_has_its_heat_map() -> None:
    image = Image.new("RGB", (8000, 50), "gray")
    for window in ((0, 0, 8000, 50), (3980, 5, 4020, 45), (7990, 40, 8000, 50)):
        shown = heat(image, window, np.ones((2, 2), np.float32), 1.0, 240)
        assert shown.size == (240, 2)


def test_pixels_are_upright_as_files_are() -> None:
    turned = Image.new("RGB", (30, 20))
    exif = turned.getexif()
    exif[0x0112] = 6
    upload = check_upload(encoded(turned, "JPEG", exif=exif), LIMITS)
    assert (upload.width, upload.height) == upload.image().size == (20, 30)


def test_the_ones_not_used_for_longest_make_room() -> None:
    uploads = Uploads(kept_bytes=25)
    a, b, c = (Upload(name, bytes(10), 1, 1) for name in "abc")
    uploads.add(a)
    uploads.add(b)
    assert uploads.get("a") is a
    uploads.add(c)
    assert uploads.get("b") is None
    assert uploads.get("a") is a
    assert uploads.get("c") is c


def test_limits_must_hold_an_upload() -> None:
    with pytest.raises(ValueError, match="pixels must be at least 1, got 0"):
        Limits(pixels=0)
    with pytest.raises(ValueError, match="kept_bytes must be at least upload_bytes 9"):
        Limits(upload_bytes=9, kept_bytes=8)


def test_a_body_that_is_too_long_is_not_read(index: Index) -> None:
    app = build_app(index, limits=Limits(upload_bytes=1000, kept_bytes=5000))
    read = 0

    def endless() -> object:
        nonlocal read
        for _ in range(1000):
            read += 1000
            yield b"\0" * 1000

    with TestClient(app, BASE) as client:
        response = client.post("/api/uploads", content=b"\0" * 100_000)
        assert response.status_code == 413
        streamed = client.post("/api/uploads", content=endless())  # type: ignore[arg-type]
        assert streamed.status_code == 413
        assert client.post("/api/uploads", content=b"\0" * 1001).status_code == 400
        assert client.post("/upload", files={"file": b"\0" * 100_000}).status_code == 413


def test_a_refused_upload_is_explained_on_its_page_too(client: TestClient) -> None:
    response = client.post("/upload", files={"file": ("a.png", b"no image")})
    assert response.status_code == 400
    assert "the upload is in none of the formats" in response.text
