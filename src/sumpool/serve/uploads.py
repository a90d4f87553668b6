"""Uploaded images: checked, and kept in memory while the server runs."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from sumpool.data.base import BrokenImageError
from sumpool.data.sets.decoding import NARROWEST, image_formats, read_image
from sumpool.system.errors import UserError

#: Accepted formats; the installed Pillow may lack some.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")


class UploadError(UserError):
    """An upload is rejected; the message says why and names the limit."""


@dataclass(frozen=True)
class Limits:
    """Limits on uploads.

    Attributes:
        upload_bytes: Maximum size of an image in bytes.
        pixels: Maximum number of pixels of an image.
        kept_bytes: Maximum size of all kept images in bytes; the least recently used are dropped.
    """

    upload_bytes: int = 16 * 2**20
    pixels: int = 40_000_000
    kept_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        for name in ("upload_bytes", "pixels", "kept_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.kept_bytes < self.upload_bytes:
            raise ValueError(
                f"kept_bytes must be at least upload_bytes {self.upload_bytes}, "
                f"got {self.kept_bytes}"
            )


@dataclass(frozen=True)
class Upload:
    """An uploaded image that passed the checks.

    Attributes:
        token: Identifier in URLs, a digest of the content.
        content: The file.
        width: Width of the upright image in pixels.
        height: Height of the upright image in pixels.
    """

    token: str
    content: bytes
    width: int
    height: int

    def image(self) -> Image.Image:
        """Decode the image, RGB and upright."""
        return read_image(Image.open(io.BytesIO(self.content), formats=upload_formats()))


def upload_formats() -> list[str]:
    """Accepted formats that the installed Pillow can read."""
    return [name for name in FORMATS if name in image_formats()]


def check_upload(content: bytes, limits: Limits) -> Upload:
    """Check an uploaded file by decoding it.

    Raises:
        UploadError: If it is empty, too large, damaged, or not in an accepted format.
    """
    if not content:
        raise UploadError("the upload is empty: choose an image file")
    if len(content) > limits.upload_bytes:
        raise UploadError(
            f"the upload has {len(content):,} bytes, at most {limits.upload_bytes:,} are accepted"
        )
    try:
        image = Image.open(io.BytesIO(content), formats=upload_formats())
        pixels = image.width * image.height
    except UnidentifiedImageError as error:
        raise UploadError(
            f"the upload is in none of the formats {', '.join(upload_formats())}"
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UploadError(_too_many(limits)) from error
    except Exception as error:  # damaged bytes make decoders raise anything
        raise UploadError("the upload cannot be read: it is damaged") from error
    if pixels > limits.pixels:
        raise UploadError(_too_many(limits))
    if max(image.size) > NARROWEST * min(image.size):
        raise UploadError(
            f"the upload is too narrow, its longer side may have {NARROWEST} times the length of "
            "the shorter one"
        )
    try:
        upright = read_image(image)
    except BrokenImageError as error:
        raise UploadError("the upload cannot be read: it is damaged or cut short") from error
    return Upload(hashlib.sha256(content).hexdigest()[:32], content, upright.width, upright.height)


def _too_many(limits: Limits) -> str:
    return f"the upload has too many pixels, at most {limits.pixels:,} are accepted"


class Uploads:
    """A thread-safe cache of recent uploads by token.

    Args:
        kept_bytes: Maximum total size in bytes.
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept: OrderedDict[str, Upload] = OrderedDict()
        self._room = kept_bytes
        self._lock = threading.Lock()

    def add(self, upload: Upload) -> None:
        """Keep ``upload``, dropping the least recently used ones to make room."""
        with self._lock:
            self._kept[upload.token] = upload
            self._kept.move_to_end(upload.token)
            while sum(len(it.content) for it in self._kept.values()) > self._room:
                self._kept.popitem(last=False)

    def get(self, token: str) -> Upload | None:
        """Return the upload with this token, or None if it was dropped."""
        with self._lock:
            if token in self._kept:
                self._kept.move_to_end(token)
            return self._kept.get(token)
