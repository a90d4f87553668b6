"""Requests that somebody made to break a server, to read its files, or to run scripts in pages."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count, islice

from PIL import Image

SCRIPT = "<script>window.harmed=1</script>"
#: Text that only a page with a script of others in it would have.
SCRIPTS = ("<script>window", "<img src=x", "<svg onload")
#: Text that only an answer with a file or a traceback in it would have.
LEAKS = ("root:x:0", "Traceback (most", "site-packages", "def build_app")


@dataclass(frozen=True)
class Hostile:
    """A request: bytes as they are sent where ``raw`` is given."""

    kind: str
    method: str = "GET"
    target: str = "/"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    raw: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.target[:60]}" if self.raw is None else repr(self.raw[:40])


def _traversal(draw: random.Random) -> Hostile:
    up = draw.choice(
        ["../", "..%2f", "%2e%2e/", "..%5c", "%252e%252e%252f", "....//", "..;/", "//"]
    )
    file = draw.choice(["etc/passwd", "proc/self/environ", "app.py", "openapi.json", "index.json"])
    start = draw.choice(
        ["/static/", "/", "/image/", "/api/images/", "/picture?image=", "/search?upload="]
    )
    end = draw.choice(["", "%00.png", "?", "#", "/."])
    return Hostile("path traversal", target=start + up * draw.randint(1, 9) + file + end)


#: Values that are of another type than they should be, or much larger.
_VALUES = (
    "-1", "0", "1e400", "nan", "inf", "%D9%A3", "1.5", "0x10", "9" * 400, "true", "null", "[]",
    "%00", "%0d%0aSet-Cookie:%20a=b", "'%20OR%201=1--", "$%7B7*7%7D", "%7B%7B7*7%7D%7D", "%ff%fe",
    "%F0%9F%92%A9", "A" * 5000, "1,2,3", "1,1,1,1", "0,0,99999999,9", "-1,-1,5,5", "../../etc",
    "%3Cscript%3Ewindow.harmed=1%3C/script%3E", "%22%3E%3Cimg%20src=x%20onerror=1%3E", "%s%n",
)  # fmt: skip


_PATHS = (
    "/search", "/api/search", "/match", "/api/match", "/picture", "/", "/map", "/duplicates",
    "/api/images", "/prototype/0", "/api/prototypes/0", "/image/0", "/api/duplicates",
)  # fmt: skip


def _arguments(draw: random.Random) -> Hostile:
    path = draw.choice(_PATHS)
    names = ["image", "upload", "k", "box", "label", "show", "with", "side", "size", "seed"]
    names += ["threshold", "offset", "limit", "prototype", "view", "token", SCRIPT]
    chosen = draw.choices(names, k=draw.randint(1, 4))
    given = [f"{name}={draw.choice([*_VALUES, '1'])}" for name in chosen]
    return Hostile(
        "wrong types", target=f"{path}?{'&'.join(['image=1'][: draw.randint(0, 1)] + given)}"
    )


def _encoded(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def _png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    rows = (b"IDAT", zlib.compress(b"\0" * 10**6))
    listed = (header, *chunks, rows, (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*it) for it in listed)


@cache
def _large(format: str) -> bytes:
    """A sound image with more pixels than are accepted, in few bytes."""
    return _encoded(Image.new("L", (8_000, 6_000)), format)


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../a.png", b"\0" * 10**7)
    return buffer.getvalue()


def _image_bytes(draw: random.Random) -> bytes:
    noise = Image.frombytes("RGB", (40, 30), draw.randbytes(3600))
    format = draw.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
    whole = _encoded(noise, format)
    text = (b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 3 * 10**7))
    side = draw.choice([5_000, 12_000, 30_000, 2**31 - 1])
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: _png(side, side),
        lambda: _png(40, 30, text),
        lambda: _large("PNG"),
        lambda: _large("GIF"),
        lambda: whole[: draw.randrange(len(whole))],
        lambda: _changed(whole, draw),
        lambda: _changed(whole, draw),
        lambda: whole + SCRIPT.encode(),
        lambda: f"<svg xmlns='http://www.w3.org/2000/svg' onload='1'>{SCRIPT}</svg>".encode(),
        lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run\n",
        lambda: b"GIF89a" + draw.randbytes(200),
        lambda: draw.randbytes(draw.randrange(5000)),
        lambda: b"\0" * draw.choice([0, 1, 3_000_000]),
        _zip,
    )
    return draw.choice(makers)()


def _changed(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 12)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _upload(draw: random.Random) -> Hostile:
    target = draw.choice(["/api/uploads", "/api/search", "/api/search?k=3&box=0,0,20,20"])
    return Hostile("broken and giant images", "POST", target, body=_image_bytes(draw))


def _form(draw: random.Random) -> Hostile:
    name = draw.choice(["file", "other", SCRIPT, "file" * 2000])
    file = draw.choice(["../../../etc/passwd", SCRIPT, "a\0b.png", "a" * 9000, '"; x="'])
    part = f'--B\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n\r\n'
    end = draw.choice(["\r\n--B--\r\n", "", "\r\n--C--\r\n"])
    body = (part.encode() + _image_bytes(draw) + end.encode()) * draw.choice([1, 1, 30])
    kind = draw.choice(
        ["multipart/form-data; boundary=B", "multipart/form-data", "text/plain", "multipart/mixed"]
    )
    return Hostile("forms", "POST", "/upload", {"Content-Type": kind}, body)


def _headers(draw: random.Random) -> Hostile:
    method = draw.choice(["GET", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "HEAD", "X"])
    header = draw.choice(
        [
            {"Host": "evil.example"},
            {"Host": f"localhost/{SCRIPT}"},
            {"Origin": "https://evil.example"},
            {"Cookie": "sumpool_token=" + "x" * 4000},
            {"Authorization": "Bearer " + "x" * 4000},
            {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "1.2.3.4"},
            {"Range": "bytes=0-" + ",".join("0-" for _ in range(400))},
            {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"},
            {"Content-Type": "application/json" + ";a=b" * 500},
            {f"X-{number}": "y" * 90 for number in range(90)},
        ]
    )
    target = draw.choice(["/", "/api/uploads", "/search?image=1", "/static/page.js", "/nothing"])
    return Hostile("headers and methods", method, target, header)


def _raw(draw: random.Random) -> Hostile:
    start = b" HTTP/1.1\r\nHost: localhost\r\n"
    post = b"POST /api/uploads" + start
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    texts = (
        draw.randbytes(300),
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET /" + start + b"Host: localhost\r\n\r\n",
        b"GET /" + start + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + start + b"\r\n",
        post + b"Content-Length: -5\r\n\r\nabc",
        post + b"Content-Length: 99999999999\r\n\r\nabc",
        post + b"Content-Length: 4\r\n" + chunked + b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        post + chunked + b"FFFFFFFF\r\nx",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(100),
    )
    return Hostile("broken HTTP", raw=draw.choice(texts))


_KINDS = (_traversal, _arguments, _arguments, _upload, _upload, _form, _headers, _raw)


def hostile_requests(number: int, seed: int = 0) -> Iterator[Hostile]:
    """As many requests, of every kind in turn."""
    draws = (random.Random(f"request {seed} {it}") for it in count())
    return islice((_KINDS[it % len(_KINDS)](draw) for it, draw in enumerate(draws)), number)
