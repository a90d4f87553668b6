"""Data sets of a few images each, laid out as the official archives are."""

from __future__ import annotations

import gzip
import io
import pickle
import pickletools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
from numpy.typing import NDArray
from PIL import Image


def image(path: Path, color: str | int = "red", mode: str = "RGB", size: Any = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)
    return path


def text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def cub(root: Path, sizes: Sequence[int] = (2, 1, 3, 2)) -> Path:
    """``sizes`` images of each class, numbered from 1, in CUB_200_2011."""
    home = root / "CUB_200_2011"
    classes = [f"{it:03d}.Bird_{it}" for it in range(1, len(sizes) + 1)]
    images = [
        f"{name}/{k}.jpg" for name, size in zip(classes, sizes, strict=True) for k in range(size)
    ]
    labels = [it for it, size in enumerate(sizes, 1) for _ in range(size)]
    for path in images:
        image(home / "images" / path)
    text(home / "classes.txt", *(f"{it} {name}" for it, name in enumerate(classes, 1)))
    text(home / "images.txt", *(f"{it} {path}" for it, path in enumerate(images, 1)))
    text(home / "image_class_labels.txt", *(f"{it} {label}" for it, label in enumerate(labels, 1)))
    return home


#: Those of the structures in ``cars_annos.mat``, in their order.
CARS_FIELDS = (*("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test"),)


def cars(root: Path, labels: Sequence[int] = (3, 1, 2, 4, 1)) -> Path:
    """One image a label, a number from 1, listed as the archive's MATLAB file does."""
    annotations = np.zeros((1, len(labels)), dtype=[(name, object) for name in CARS_FIELDS])
    for it, label in enumerate(labels):
        path = f"car_ims/{it + 1:06d}.jpg"
        image(root / path)
        box = (number(7), number(11), *(np.array([[end]], np.uint16) for end in (853, 642)))
        annotations[0, it] = (path, *box, number(label), np.array([[it % 2 == 0]]))
    names = np.empty((1, max(labels)), dtype=object)
    names[0, :] = [f"Car Model {it}" for it in range(1, max(labels) + 1)]
    scipy.io.savemat(root / "cars_annos.mat", {"annotations": annotations, "class_names": names})
    return root


def number(value: int) -> NDArray[np.uint8]:
    return np.array([[value]], dtype=np.uint8)


def sop(root: Path) -> Path:
    """Two products to train with, one to test with."""
    home = root / "Stanford_Online_Products"
    header = "image_id class_id super_class_id path"
    train = [
        "1 1 1 bicycle_final/11_0.JPG",
        "2 1 1 bicycle_final/11_1.JPG",
        "3 2 2 mug_final/12_0.JPG",
    ]
    test = ["4 3 1 bicycle_final/13_0.JPG", "5 3 1 bicycle_final/13_1.JPG"]
    text(home / "Ebay_train.txt", header, *train)
    text(home / "Ebay_test.txt", header, *test)
    for row in train + test:
        image(home / row.split()[3])
    return home


def inshop(root: Path, *, nested: bool = True) -> Path:
    """One piece to train with; two to look for, of which one image is to be found each."""
    rows = {
        "img/WOMEN/Dresses/id_00000007/01_1_front.jpg": ("id_00000007", "train"),
        "img/WOMEN/Dresses/id_00000007/01_2_side.jpg": ("id_00000007", "train"),
        "img/MEN/Denim/id_00000001/01_1_front.jpg": ("id_00000001", "query"),
        "img/MEN/Denim/id_00000001/01_2_side.jpg": ("id_00000001", "gallery"),
        "img/MEN/Denim/id_00000003/01_1_front.jpg": ("id_00000003", "query"),
        "img/MEN/Denim/id_00000003/01_2_side.jpg": ("id_00000003", "gallery"),
    }
    lines = [f"{path}      {item} {part}" for path, (item, part) in rows.items()]
    header = (str(len(rows)), "image_name item_id evaluation_status")
    text(root / ("Eval" if nested else ".") / "list_eval_partition.txt", *header, *lines)
    for path in rows:
        image(root / ("Img" if nested else ".") / path)
    return root


def parquet(
    root: Path,
    *,
    nested: bool = False,
    labels: Sequence[Any] | None = ("b", "a", "b", "a"),
    size: tuple[int, int] = (8, 6),
) -> Path:
    """Four images in two files of two row groups each; nested as Hugging Face's data sets are."""
    colors = ("red", "green", "blue", "white")
    for number in range(2):
        rows: dict[str, Any] = {"image": []}
        for color in colors[2 * number : 2 * number + 2]:
            buffer = io.BytesIO()
            Image.new("RGB", size, color).save(buffer, "PNG")
            content = buffer.getvalue()
            rows["image"].append({"bytes": content, "path": None} if nested else content)
        if labels is not None:
            rows["label"] = labels[2 * number : 2 * number + 2]
        root.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(rows), root / f"{number}.parquet", row_group_size=1)
    return root


def pixels(count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random CIFAR rows, (count, 3072)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar100(root: Path, dump: Any = None) -> tuple[Path, Mapping[str, Mapping[str, Any]]]:
    """Six images to train with, four to test with; what is in the files comes back too."""
    home = root / "cifar-100-python"
    home.mkdir(parents=True)
    content: dict[str, dict[str, Any]] = {
        "train": {
            "data": pixels(6),
            "fine_labels": [0, 1, 2, 3, 4, 0],
            "coarse_labels": [0, 0, 1, 1, 1, 0],
        },
        "test": {"data": pixels(4, 1), "fine_labels": [4, 3, 2, 1], "coarse_labels": [1, 1, 1, 0]},
        "meta": {"fine_label_names": list("abcde"), "coarse_label_names": ["vowel", "other"]},
    }
    for name, entries in content.items():
        (home / name).write_bytes((dump or pickle.dumps)(entries))
    return home, content


def cifar10(root: Path, dump: Any = None) -> Path:
    """Five files of two images to train with, one of three to test with."""
    home = root / "cifar-10-batches-py"
    home.mkdir(parents=True)
    dump = dump or pickle.dumps
    for it in range(1, 6):
        batch = {"data": pixels(2, it), "labels": [it % 3, (it + 1) % 3]}
        (home / f"data_batch_{it}").write_bytes(dump(batch))
    (home / "test_batch").write_bytes(dump({"data": pixels(3, 9), "labels": [0, 1, 2]}))
    (home / "batches.meta").write_bytes(dump({"label_names": ["plane", "car", "bird"]}))
    return home


def dump_python2(content: Mapping[str, Any]) -> bytes:
    """``content`` as Python 2 pickled it: protocol 2, all text and all bytes as byte strings."""
    out = [b"\x80\x02", b"}", b"("]
    for key, value in content.items():
        out += [_string(key.encode()), _python2(value)]
    out += [b"u", b"."]
    stream = b"".join(out)
    assert all(op.name != "STACK_GLOBAL" for op, _, _ in pickletools.genops(stream))
    return stream


def _python2(value: Any) -> bytes:
    if isinstance(value, list):
        items = b"".join(
            _string(it.encode()) if isinstance(it, str) else b"J" + struct.pack("<i", it)
            for it in value
        )
        return b"](" + items + b"e"
    shape = b"".join(b"J" + struct.pack("<i", side) for side in value.shape)
    dtype = (
        b"cnumpy\ndtype\n" + b"(" + _string(b"u1") + b"K\x00K\x01tR"
        b"(K\x03" + _string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + _string(b"b") + b"tR"
        b"(K\x01(" + shape + b"t" + dtype + b"I00\n" + _string(value.tobytes()) + b"tb"
    )


def _string(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def idx(path: Path, values: NDArray[np.uint8]) -> Path:
    """``values`` as an IDX file, compressed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    content = header + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


#: The first labels of the real data sets' training files.
MNIST_LABELS = (5, 0, 4, 1, 9, 2, 1, 3, 1, 4)
FASHION_LABELS = (9, 0, 0, 3, 0, 2, 7, 2, 5, 5)


def mnist(root: Path, labels: Sequence[int] = MNIST_LABELS, ending: str = "") -> Path:
    """Ten images to train with and three to test with."""
    random = np.random.default_rng(0)
    for part, count in (("train", len(labels)), ("t10k", 3)):
        some = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        idx(root / f"{part}-images-idx3-ubyte{ending}", some)
        idx(root / f"{part}-labels-idx1-ubyte{ending}", np.array(labels[:count], dtype=np.uint8))
    return root


def class_folders(root: Path, sizes: Mapping[str, int]) -> Path:
    for name, size in sizes.items():
        for it in range(size):
            image(root / name / f"{it}.png")
    return root
