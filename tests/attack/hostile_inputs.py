"""Files that somebody made to break what reads them; each is built for one command."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from data import miniatures

#: Appears if code from a file was run.
PROOF = "code-was-run"


class Hostile(NamedTuple):
    """Arguments of a command; ``refused``: whether it must not succeed."""

    argv: list[str]
    refused: bool = True


#: Builds an input in a folder, for a trained model; drawn differently each time.
Build = Callable[[Path, Path, random.Random], Hostile]


def _embed(model: Path, data: Path, *more: str) -> list[str]:
    return ["embed", str(model), "--data", str(data), "--out", "v.npy", "--workers", "0", *more]


def _random_bytes(draw: random.Random, most: int = 4096) -> bytes:
    return draw.randbytes(draw.randrange(most))


def _mutated(content: bytes, draw: random.Random) -> bytes:
    """A few bytes replaced, removed or repeated."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(changed)) if changed else 0
        way = draw.randrange(4)
        if way == 0:
            changed[at : at + 1] = draw.randbytes(1)
        elif way == 1:
            changed[at : at + 4] = draw.choice([b"\xff\xff\xff\x7f", b"\x00" * 4, b"\xff" * 4])
        elif way == 2:
            del changed[at : at + draw.randint(1, 64)]
        else:
            changed[at:at] = changed[at : at + draw.randint(1, 64)]
    return bytes(changed)


# Images


def _png(width: int, height: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _encoded(kind: str, draw: random.Random) -> bytes:
    pixels = np.random.default_rng(draw.randrange(2**32)).integers(0, 255, (40, 40, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def image(home: Path, model: Path, draw: random.Random) -> Hostile:
    """One bad image among sound ones."""
    data = miniatures.class_folders(home / "photos", {"a": 2, "b": 2})
    path = data / "a" / "bad.png"
    kind = draw.choice(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
    sound = _encoded(kind, draw)
    way = draw.randrange(9)
    if way <= 2:  # may still be readable
        path.write_bytes(_mutated(sound, draw))
        return Hostile(_embed(model, data), refused=False)
    if way == 3:
        path.write_bytes(sound[: draw.randrange(len(sound) // 2)])
    elif way == 4:
        path.write_bytes(_random_bytes(draw))
    elif way == 5:
        side = draw.choice([20_000, 60_000, 2**31 - 1])
        path.write_bytes(_png(side, side, bytes(10_000_000)))
    elif way == 6:
        path.symlink_to(draw.choice(["/dev/zero", "bad.png", "/proc/self/mem"]))
        return Hostile(_embed(model, data), refused=False)
    elif way == 7:
        os.mkfifo(path)  # nobody ever writes to it
        return Hostile(_embed(model, data), refused=False)
    else:
        path.write_text(draw.choice(["", "<svg onload='x'/>", "%!PS\n(x) run", "\0" * 100]))
    return Hostile(_embed(model, data))


# Tables


def table(home: Path, model: Path, draw: random.Random) -> Hostile:
    """A CSV file that names what it should not, or is none."""
    miniatures.class_folders(home, {"a": 2, "b": 2})
    secret = home.parent / "secret.png"
    miniatures.image(secret)
    sound = "path,label\n" + "".join(f"{it.relative_to(home)},x\n" for it in home.rglob("*.*"))
    contents: list[bytes] = [
        b"path,label\n../secret.png,x\n",
        f"path,label\n{secret},x\n".encode(),
        b"path,label\n/dev/zero,x\n",
        b"path,label\n/proc/self/environ,x\n",
        b"path,label\na,x\n",
        b"path,label\n" + b"a" * 200_000 + b",x\n",
        b"path,label\n\xff\xfe\x00,x\n",
        b'path,label\n"' + b"a\n" * 1000,
        b"path,label\n\0,x\n",
        b"path\n" + b"a,b,c\n" * 3,
        b"path,path,label\na,b,c\n",
        b"," * 100_000 + b"\n",
        b"",
        b"path,label\n",
        b"PK\x03\x04" + _random_bytes(draw),
        b"label,path\nx,%2e%2e/secret.png\n",
    ]
    refused = True
    way = draw.randrange(len(contents) + 3)
    if way < len(contents):
        content = contents[way]
    elif way == len(contents):
        content, refused = sound.replace(",x", "," + "9" * 6000).encode(), False
    else:
        content, refused = _mutated(sound.encode(), draw), False
    path = home / "list.csv"
    path.write_bytes(content)
    return Hostile(_embed(model, path), refused)


# Archives of published data sets


def mat(home: Path, model: Path, draw: random.Random) -> Hostile:
    """Cars196 with a bad cars_annos.mat."""
    miniatures.cars(home)
    path = home / "cars_annos.mat"
    sound, way = path.read_bytes(), draw.randrange(5)
    if way == 0:
        content = sound[: draw.randrange(len(sound))]
    elif way == 1:
        content = sound[:128] + _random_bytes(draw, 512)
    elif way == 2:  # a bomb: an element that grows to a gigabyte
        bomb = zlib.compress(struct.pack("<II", 14, 2**30) + bytes(2**22))
        content = sound[:128] + struct.pack("<II", 15, len(bomb)) + bomb
    elif way == 3:  # cells without end: sizes of 2³¹ − 1
        one = struct.pack("<IIII", 6, 8, 1, 0) + struct.pack("<II", 5, 8)
        sizes = struct.pack("<ii", 2 ** draw.randint(20, 31) - 1, draw.choice([1, 2, 1000]))
        body = one + sizes + struct.pack("<II", 1, 11) + b"annotations" + bytes(5)
        content = sound[:128] + struct.pack("<II", 14, len(body)) + body
        content += bytes(max(0, 512 - len(content)))
    else:
        content = _mutated(sound, draw)
    path.write_bytes(content)
    return Hostile(_embed(model, home, "--format", "cars", "--split", "all"), refused=way != 4)


class _Runs:
    """Runs code when it is unpickled."""

    def __init__(self, call: tuple[Any, ...]) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def pickled(home: Path, model: Path, draw: random.Random) -> Hostile:
    """CIFAR with a pickle that runs code, or grows."""
    root = miniatures.cifar10(home)
    path = draw.choice([it for it in root.rglob("*batch*") if it.is_file()])
    sound = path.read_bytes()
    proof = str(home / PROOF)
    calls: list[tuple[Any, ...]] = [
        (os.system, (f"touch '{proof}'",)),
        (os.mkdir, (proof,)),
        (eval, (f"__import__('os').mkdir({proof!r})",)),
        (exec, (f"open({proof!r}, 'w')",)),
        (open, (proof, "w")),
        (np.load, (proof,)),
    ]
    way = draw.randrange(10)
    if way < 4:
        call = _Runs(draw.choice(calls))
        inside = draw.choice([call, {"data": call, "labels": [0]}, [call]])
        content = pickle.dumps(inside, protocol=draw.randint(0, 4))
    elif way == 4:
        content = b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."
    elif way == 5:
        content = b"\x80\x02]q\x00" + b"h\x00h\x00\x86q\x00" * 20_000 + b"."
    elif way == 6:
        content = b"\x80\x04" + b"\x8e" + struct.pack("<Q", 2**62) + b"x."
    elif way == 7:
        content = b"c__builtin__\nbytearray\n(I4000000000\ntR."
    elif way == 8:
        content = sound[: draw.randrange(len(sound))]
    else:
        path.write_bytes(_mutated(sound, draw))
        return Hostile(_embed(model, root, "--format", "cifar10"), refused=False)
    path.write_bytes(content)
    return Hostile(_embed(model, root, "--format", "cifar10"))


def idx(home: Path, model: Path, draw: random.Random) -> Hostile:
    """MNIST with files of other sizes than they say."""
    root = miniatures.mnist(home)
    path = draw.choice([it for it in root.rglob("*ubyte") if it.is_file()])
    sound = path.read_bytes()
    way = draw.randrange(4)
    if way == 0:
        path.write_bytes(sound[:4] + struct.pack(">III", 2**31, 2**31, 2**31))
    elif way == 1:
        path.unlink()
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(bytes(2**30), 9))
    elif way == 2:
        path.write_bytes(sound[: draw.randrange(len(sound))])
    else:
        path.write_bytes(_mutated(sound, draw))
        return Hostile(_embed(model, root, "--format", "mnist"), refused=False)
    return Hostile(_embed(model, root, "--format", "mnist"))


# Configurations


def yaml(home: Path, model: Path, draw: random.Random) -> Hostile:
    """A configuration of a run."""
    data = miniatures.class_folders(home / "photos", {"a": 2, "b": 2})
    proof = home / PROOF
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{it}: &a{it} [{','.join(9 * [f'*a{it - 1}'])}]\n" for it in range(1, 12)
    )
    contents = [
        bomb,
        "loss: &x [*x]\n",
        "data: " + "[" * 3000 + "]" * 3000,
        "data: " + "{a: " * 3000 + "}" * 3000,
        f"data: !!python/object/apply:os.mkdir [{proof}]\n",
        f"data: !!python/object/new:os.system ['touch {proof}']\n",
        "optimizer:\n  lr: .nan\n",
        "optimizer:\n  lr: .inf\n",
        "optimizer:\n  lr: 1e38\n",
        "optimizer: 3\n",
        "batch_size: 1000000000000\n",
        "embedding_size: 1000000000\n",
        "gsp:\n  prototypes: 1000000000\n",
        "seed: 99999999999999999999999999\n",
        "seed: " + "9" * 6000 + "\n",
        "- a\n- b\n",
        "loss: [c2]\n",
        "no_such_option: 1\n",
        "loss: c2\nloss: ms\nnothing: 2\n",
        "\tloss: c2\n",
        "%YAML 9.9\n---\nloss: c2\n",
        "loss: !!binary aGVsbG8=\n",
        "stop:\n  max_steps: 2020-01-01\n",
        "? {a: b}\n: c\n",
    ]
    way = draw.randrange(len(contents) + 3)
    path = home / "run.yaml"
    if way < len(contents):
        path.write_text(contents[way])
    else:
        path.write_bytes(
            b"loss: \xff\xfe\n" if way == len(contents) else b"\0" + draw.randbytes(99)
        )
    return Hostile(["train", "--data", str(data), "--config", str(path), "--out", "run"])


# Models and runs


def _value(draw: random.Random, depth: int = 0) -> Any:
    plain = [None, True, -1, 10**30, 1e308, float("nan"), "", "x" * 10_000, "\ud800", [], {}]
    if depth < 3 and draw.random() < 0.3:
        return {str(it): _value(draw, depth + 1) for it in range(3)}
    return draw.choice(plain)


def description(home: Path, model: Path, draw: random.Random) -> Hostile:
    """A model folder with another model.json."""
    own = home / "model"
    shutil.copytree(model, own)
    path = own / "model.json"
    values = json.loads(path.read_text())
    data = miniatures.class_folders(home / "photos", {"a": 2, "b": 2})
    way = draw.randrange(6)
    if way == 0:
        text = draw.choice(["[" * 100_000, '{"a":' * 100_000, "", "null", "[]", "1" * 10_000])
    elif way == 1:
        options = {"checkpoint_path": str(home / "x.pt"), "pretrained": True}
        values["config"].update(backbone="resnet18", backbone_options=options)
        text = json.dumps(values)
    else:
        part = draw.choice([values, values["config"], values["preprocessing"]])
        part[draw.choice(list(part))] = _value(draw)
        text = json.dumps(values)
    path.write_text(text)
    return Hostile(_embed(own, data))


def tensors(home: Path, model: Path, draw: random.Random) -> Hostile:
    """A model folder with another model.safetensors."""
    own = home / "model"
    shutil.copytree(model, own)
    path = own / "model.safetensors"
    sound = path.read_bytes()
    data = miniatures.class_folders(home / "photos", {"a": 2, "b": 2})
    size = int.from_bytes(sound[:8], "little")
    head, way = json.loads(sound[8 : 8 + size]), draw.randrange(6)
    name = draw.choice([it for it in head if it != "__metadata__"])
    if way == 0:
        content = draw.choice([2**63, 2**40, 0, size + 1]).to_bytes(8, "little") + sound[8:]
    elif way == 1:
        deep = b"[" * 50_000
        content = len(deep).to_bytes(8, "little") + deep
    elif way == 2:
        content = pickle.dumps(_Runs((os.mkdir, (str(home / PROOF),))))
    elif way == 3:
        content = sound[: draw.randrange(len(sound))]
    elif way == 4:
        head[name][draw.choice(["dtype", "shape", "data_offsets"])] = draw.choice(
            ["F99", [2**62, 2**62], [0, 2**63], [-1], [8, 0], None]
        )
        text = json.dumps(head).encode()
        content = len(text).to_bytes(8, "little") + text + sound[8 + size :]
    else:
        content = _mutated(sound, draw)
    path.write_bytes(content)
    return Hostile(_embed(own, data))


def run_files(home: Path, model: Path, draw: random.Random) -> Hostile:
    """The files of a run that a page is made of."""
    own = home / "run"
    shutil.copytree(model.parent, own)
    names = ["run.json", "config.yaml", "log.csv", "validation.csv"]
    names += [str(it.relative_to(own)) for it in own.glob("evaluation/*/metrics.json")]
    path = own / draw.choice(names)
    way = draw.randrange(4)
    if way == 0:
        path.write_bytes(_mutated(path.read_bytes(), draw))
    elif way == 1:
        path.write_bytes(draw.choice([b"", b"[]", b"null", b"\xff\xfe", b"[" * 50_000]))
    elif way == 2:
        path.write_bytes(_random_bytes(draw))
    else:
        text = json.dumps({"precision_at_1": 7, "queries": float("nan"), "x": _value(draw)})
        path.write_text(text)
    return Hostile(["report", str(own), "--out", "page.html"], refused=False)


KINDS: dict[str, Build] = {
    "images": image,
    "CSV": table,
    ".mat": mat,
    "pickles": pickled,
    "IDX": idx,
    "YAML": yaml,
    "model.json": description,
    "safetensors": tensors,
    "files of a run": run_files,
}
