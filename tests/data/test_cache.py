"""Decoded images: their pixels, the files that keep them, and crops of whole batches."""

from __future__ import annotations

import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F

from data.miniatures import parquet
from data.pictures import VIEWS, Files, Pictures, picture
from sumpool.data import ParquetImages
from sumpool.data.base import BrokenImageError, DataError
from sumpool.data.feeds import cache, cache_build, cache_files
from sumpool.data.feeds.cache import DecodedImages, decode_images
from sumpool.data.feeds.feed import open_feed
from sumpool.data.feeds.memory import CacheMemoryError
from sumpool.data.views import resample
from sumpool.data.views.boxes import view_draws
from sumpool.data.views.host_crops import cut_on_host, pack
from sumpool.data.views.resample import Window, crop, place
from sumpool.system import memory

LABELS = [0, 0, 1, 1, 2, 2, 2, 0]
#: What the index of a stored cache had not in its first version.
NEW_KEYS = ("checksums", "sha256")


def decoded_pictures(resize: int | None = 48) -> DecodedImages:
    return decode_images(Pictures(LABELS), resize, progress=False)


def window_of(decoded: DecodedImages, boxes: np.ndarray, flips: np.ndarray) -> Window:
    return Window(decoded.starts, decoded.sizes[:, 1], boxes, flips)


def random_window(decoded: DecodedImages) -> Window:
    draws = view_draws(seed=0, step=0, first=0, count=len(decoded))
    return window_of(decoded, *VIEWS.train_boxes(decoded.sizes, draws))


def resized(
    pixels: torch.Tensor, window: Window, size: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return crop(pixels, place(window, size), size, dtype)


def image(decoded: DecodedImages, position: int) -> torch.Tensor:
    """The pixels of one image, (height, width, 3)."""
    start, shape = int(decoded.starts[position]), (*decoded.sizes[position].tolist(), 3)
    return decoded.pixels[start : start + int(np.prod(shape))].view(shape)


def loop(decoded: DecodedImages, window: Window, size: int) -> torch.Tensor:
    """torchvision's resized_crop in float32, image by image."""
    out = []
    for position, box in enumerate(window.boxes.tolist()):
        pixels = image(decoded, position).permute(2, 0, 1).float()
        part = F.resized_crop(pixels, *box, size=[size, size], antialias=True)
        out.append(part.flip(-1) if window.flips[position] else part)
    return torch.stack(out)


# Decoding


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("resize", [48, None])
def test_decoded_images_are_the_resized_ones(resize: int | None, threads: int) -> None:
    dataset = Pictures(LABELS)
    decoded = decode_images(dataset, resize, progress=False, threads=threads)
    for position in range(len(dataset)):
        source = dataset.images[position]
        expected = source if resize is None else F.resize(source, [resize])
        assert np.array_equal(image(decoded, position).numpy(), np.asarray(expected))
    assert decoded.pixels.numel() == 3 * decoded.sizes.prod(1).sum()


def test_a_buffer_that_grows_often_holds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decoded_pictures().pixels
    monkeypatch.setattr(cache, "_GROWTH", 1000)
    assert torch.equal(decoded_pictures().pixels, expected)


def test_all_broken_images_are_counted_and_the_first_named() -> None:
    with pytest.raises(BrokenImageError, match=r"^cannot read the image album/picture 5: it is t"):
        decode_images(Pictures(LABELS, broken=[5]), 48, progress=False)
    with pytest.raises(BrokenImageError, match=r"^cannot read 2 images: .*5 \(it is torn\), .*6 "):
        decode_images(Pictures(LABELS, broken=[5, 6]), 48, progress=False)


def test_no_image_at_all_is_an_error() -> None:
    with pytest.raises(BrokenImageError, match=r"cannot read 2 images: .*picture 0 \(it is torn"):
        decode_images(Pictures([0, 0], broken=[0, 1]), 48, progress=False)
    with pytest.raises(ValueError, match="at least one image"):
        decode_images(Pictures(LABELS).subset([]), 48, progress=False)


def test_subsets_find_their_images_by_name() -> None:
    dataset = Pictures(LABELS)
    decoded = decode_images(dataset, 48, progress=False)
    assert decoded.rows(dataset.subset([6, 1, 1])).tolist() == [6, 1, 1]
    few = decode_images(dataset.subset([3, 4]), 48, progress=False)
    with pytest.raises(DataError, match="album/picture 2 is not among the 2 decoded images"):
        few.rows(dataset.subset([3, 2]))


def test_too_little_memory_is_noticed_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Pictures(LABELS * 20)
    monkeypatch.setattr(cache, "available_memory", lambda: 1000)
    with pytest.raises(CacheMemoryError, match=r"need [\d,]+ bytes .* of which 1,000 bytes") as e:
        decode_images(dataset, 48, progress=False)
    assert dataset.loads <= 32
    needed = int(re.findall(r"need ([\d,]+) bytes", str(e.value))[0].replace(",", ""))
    truth = sum(3 * 48 * (48 * max(it.size) // min(it.size)) for it in dataset.images)
    assert abs(needed / truth - 1) < 0.1
    assert isinstance(e.value, MemoryError)


def test_memory_of_this_machine_is_known() -> None:
    available = memory.available_memory()
    assert available is None or available > 10**6


def test_a_memory_limit_of_the_control_group_counts(tmp_path: Path) -> None:
    group = Path("/proc/self/cgroup")
    if not group.exists() or "::" not in group.read_text():
        pytest.skip("no control groups of version 2 here")
    folder = tmp_path / group.read_text().split("::", 1)[1].strip().lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text("5000\n")
    (folder / "memory.current").write_text("3000\n")
    (folder / "memory.stat").write_text("anon 2\ninactive_file 500\n")
    assert memory._group_memory(tmp_path) == 2500
    (folder / "memory.max").write_text("max\n")
    assert memory._group_memory(tmp_path) is None


# Files


def test_a_stored_cache_is_decoded_once(tmp_path: Path) -> None:
    dataset = Pictures(LABELS)
    first = decode_images(dataset, 48, progress=False, cache_dir=tmp_path)
    loads = dataset.loads
    again = decode_images(dataset, 48, progress=False, cache_dir=tmp_path)
    assert dataset.loads <= loads + len(LABELS)  # looked at for the fingerprint, not decoded
    assert len(list(tmp_path.glob("*.pixels"))) == 1
    plain = decoded_pictures()
    for it in (first, again):
        assert torch.equal(it.pixels, plain.pixels)
        assert np.array_equal(it.starts, plain.starts)
        assert np.array_equal(it.sizes, plain.sizes)


def test_files_are_not_opened_again(tmp_path: Path) -> None:
    dataset = Files(tmp_path, LABELS)
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache")
    loads = dataset.loads
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache")
    assert dataset.loads == loads


def test_other_images_are_another_cache(tmp_path: Path) -> None:
    def fingerprint(dataset: Pictures, resize: int | None = 48) -> str:
        return cache_build.fingerprint(dataset, resize)

    dataset = Files(tmp_path, LABELS)
    known = {
        fingerprint(dataset),
        fingerprint(dataset, 32),
        fingerprint(dataset, None),
        fingerprint(dataset.subset([0, 1])),
        fingerprint(dataset.subset([1, 0])),
        fingerprint(Pictures(LABELS)),
        fingerprint(Pictures(LABELS, seed=1)),
    }
    picture(50, 50).save(dataset.item_name(3))
    known.add(fingerprint(dataset))
    os.utime(dataset.item_name(4), (0, 0))
    known.add(fingerprint(dataset))
    known.add(fingerprint(ParquetImages(parquet(tmp_path / "rows"))))
    os.utime(tmp_path / "rows" / "1.parquet", (0, 0))
    known.add(fingerprint(ParquetImages(tmp_path / "rows")))
    assert len(known) == 11


@pytest.mark.parametrize("damage", ["short", "gone", "index", "format", "sum"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, damage: str) -> None:
    expected = decode_images(Pictures(LABELS), 48, progress=False, cache_dir=tmp_path).pixels
    (pixels,), (index,) = tmp_path.glob("*.pixels"), tmp_path.glob("*.json")
    if damage == "short":
        os.truncate(pixels, 100)
    elif damage == "gone":
        pixels.unlink()
    elif damage == "index":
        index.write_text(index.read_text()[:50])
    elif damage == "sum":
        values = json.loads(index.read_text())
        values["checksums"][3] ^= 1
        index.write_text(json.dumps(values))
    else:
        index.write_text(index.read_text().replace('"format": 1', '"format": 0'))
    with pytest.warns(UserWarning, match="damaged; decoding again"):
        again = decode_images(Pictures(LABELS), 48, progress=False, cache_dir=tmp_path)
    assert torch.equal(again.pixels, decoded_pictures().pixels)
    if damage != "short":  # then the old map's pages are gone
        assert torch.equal(again.pixels, expected)


def test_every_damaged_pixel_of_a_stored_image_is_found_when_it_is_used(tmp_path: Path) -> None:
    dataset = Pictures(LABELS)
    decoded = decode_images(dataset, 48, progress=False, cache_dir=tmp_path)
    (pixels,) = tmp_path.glob("*.pixels")
    rng = np.random.default_rng(0)
    for position in range(len(dataset)):
        sound = pixels.read_bytes()
        end = int([*decoded.starts, pixels.stat().st_size][position + 1])
        place = int(rng.integers(decoded.starts[position], end))
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(rng.integers(8))
        pixels.write_bytes(damaged)
        opened = decode_images(dataset, 48, progress=False, cache_dir=tmp_path)
        others = [it for it in range(len(dataset)) if it != position]
        opened.check(np.array(others))
        feed = open_feed(dataset, VIEWS, cache="ram", decoded=opened)
        with pytest.raises(DataError, match=rf"{pixels} is damaged: .*picture {position} is not"):
            list(feed.test_batches())
        with pytest.raises(DataError, match="is not what was stored; remove the file"):
            opened.check(np.array([position]))
        with pytest.raises(DataError, match="is not what was stored"):
            opened.to("meta")
        pixels.write_bytes(sound)
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path).check(np.arange(8))


def test_blocks_that_are_zeroed_moved_or_torn_have_another_checksum() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, 5 * 4096 + 77, dtype=np.uint8)
    zeroed, moved, torn = pixels.copy(), pixels.copy(), pixels.copy()
    zeroed[4096:8192] = 0
    moved[:8192] = np.roll(pixels[:8192], 4096)
    torn[-512:] = pixels[:512]
    sums = {cache_files.checksum(it) for it in (pixels, zeroed, moved, torn, pixels[1:])}
    assert len(sums) == 5


def test_an_index_of_the_first_version_is_read(tmp_path: Path) -> None:
    dataset = Files(tmp_path, LABELS)
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache")
    (index,) = (tmp_path / "cache").glob("*.json")
    values = json.loads(index.read_text())
    first = {k: v for k, v in values.items() if k not in NEW_KEYS}
    index.write_text(json.dumps(first | {"broken": {}}))
    loads = dataset.loads
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache").check(np.arange(8))
    assert dataset.loads == loads


def test_an_index_that_leaves_out_images_is_made_again(tmp_path: Path) -> None:
    dataset = Files(tmp_path, LABELS)
    decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache")
    (index,) = (tmp_path / "cache").glob("*.json")
    (pixels,) = (tmp_path / "cache").glob("*.pixels")
    values = json.loads(index.read_text()) | {"broken": {"7": "it is torn"}}
    height, width = values["sizes"][7]
    values["sizes"][7], values["checksums"][7] = [0, 0], 0
    values["bytes"] -= 3 * height * width
    pixels.write_bytes(pixels.read_bytes()[: values["bytes"]])
    del values["sha256"]
    values["sha256"] = cache_files._digest(values)
    index.write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="damaged; decoding again"):
        again = decode_images(dataset, 48, progress=False, cache_dir=tmp_path / "cache")
    assert torch.equal(again.pixels, decoded_pictures().pixels)


def test_processes_that_ask_at_once_decode_once(tmp_path: Path) -> None:
    built = []

    def build(file: object) -> cache_files.PixelIndex:
        built.append(1)
        file.write(bytes(12))  # type: ignore[attr-defined]
        return cache_files.PixelIndex(np.array([[2, 2]]))

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(cache_files.stored_pixels, tmp_path, "k", build) for _ in range(4)]
        found = [task.result() for task in tasks]
    assert len(built) == 1
    assert {path for path, _ in found} == {tmp_path / "k.pixels"}
    assert all(layout.total() == 12 for _, layout in found)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DataError, match=rf"{tmp_path}.*pixels .*: {os.strerror(number)}"):
        decode_images(Pictures(LABELS), 48, progress=False, cache_dir=tmp_path)
    assert [it.suffix for it in tmp_path.iterdir()] == [".lock"]


def test_a_broken_image_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BrokenImageError, match="picture 5"):
        decode_images(Pictures(LABELS, broken=[5]), 48, progress=False, cache_dir=tmp_path)
    assert [it.suffix for it in tmp_path.iterdir()] == [".lock"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    def build(file: BinaryIO) -> cache_files.PixelIndex:
        file.write(bytes(12))
        return cache_files.PixelIndex(np.array([[2, 2]]))

    others = {".k.pixels.7-a.part", ".k.json.7-a.part", ".k2.pixels.7-a.part", "k2.json"}
    for name in others:
        (tmp_path / name).write_bytes(b"half")
    cache_files.stored_pixels(tmp_path, "k", build)
    left = {it.name for it in tmp_path.iterdir()}
    assert left == {"k.pixels", "k.json", "k.lock", ".k2.pixels.7-a.part", "k2.json"}


def test_too_small_a_disk_is_noticed_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(CacheMemoryError, match=r"of disk in .* of which 10 bytes"):
        decode_images(Pictures(LABELS), 48, progress=False, cache_dir=tmp_path)


# Crops of whole batches


@pytest.mark.parametrize("size", [17, 40, 64])
def test_batched_crops_are_torchvisions(size: int) -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    assert window.flips.any()
    assert not window.flips.all()
    got = resized(decoded.pixels, window, size)
    torch.testing.assert_close(got, loop(decoded, window, size), rtol=0, atol=0.01)


@pytest.mark.parametrize("side", [1, 3, 20, 44])
def test_batched_crops_enlarge_and_shrink_as_torchvision(side: int) -> None:
    decoded = decoded_pictures()
    box = np.array([[48 - side, 0, side, side], [0, 48 - side, side, 2 * side // 3 + 1]])
    window = window_of(decoded, np.tile(box, (4, 1)), np.arange(8) % 3 == 0)
    got = resized(decoded.pixels, window, 32)
    torch.testing.assert_close(got, loop(decoded, window, 32), rtol=0, atol=0.01)


def test_strong_shrinking_is_antialiased_as_in_torchvision() -> None:
    decoded = decoded_pictures(resize=None)
    whole = np.concatenate([np.zeros_like(decoded.sizes), decoded.sizes], axis=1)
    window = window_of(decoded, whole, np.arange(8) % 2 == 0)
    got = resized(decoded.pixels, window, 5)
    torch.testing.assert_close(got, loop(decoded, window, 5), rtol=0, atol=0.01)


def test_batched_crops_differ_from_pillows_by_rounding() -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    difference = resized(decoded.pixels, window, 40) - cut_on_host(decoded.pixels, window, 40)
    assert difference.abs().mean() < 0.4
    assert difference.abs().max() < 1.2


def test_half_precision_is_within_a_quarter_of_a_gray_level() -> None:
    decoded = decode_images(Pictures(LABELS[:2]), 32, progress=False)
    boxes = np.array([[3, 1, 20, 24], [0, 0, 32, 31]])
    window = window_of(decoded, boxes, np.array([True, False]))
    half = resized(decoded.pixels, window, 16, torch.float16)
    assert half.dtype == torch.float16
    exact = resized(decoded.pixels, window, 16)
    assert (half.float() - exact).abs().max() < 0.25


def test_autocast_does_not_coarsen_crops() -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    expected = resized(decoded.pixels, window, 40)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(resized(decoded.pixels, window, 40), expected)


def test_a_batch_worked_off_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    expected = resized(decoded.pixels, window, 40)
    for most in (1, 3 * 64 * 64 * 3):
        monkeypatch.setattr(resample, "_MOST", most)
        got = resized(decoded.pixels, window, 40)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-3)


def test_crops_without_resizing_are_exact() -> None:
    decoded = decoded_pictures()
    boxes, flips = VIEWS.test_boxes(decoded.sizes), np.arange(8) % 2 == 0
    window = window_of(decoded, boxes, flips)
    got = resized(decoded.pixels, window, 40)
    assert got.dtype == torch.uint8
    for position, (top, left, height, width) in enumerate(boxes.tolist()):
        part = image(decoded, position)[top : top + height, left : left + width]
        expected = part.flip(1) if flips[position] else part
        assert torch.equal(got[position], expected.permute(2, 0, 1))
    assert torch.equal(got, cut_on_host(decoded.pixels, window, 40))


def test_packed_boxes_are_the_boxes() -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    packed, moved = pack(decoded.pixels, window, pinned=False)
    assert packed.numel() == 3 * window.boxes[:, 2:].prod(1).sum()
    torch.testing.assert_close(
        resized(packed, moved, 40),
        resized(decoded.pixels, window, 40),
        rtol=0,
        atol=1e-3,
    )
    assert torch.equal(cut_on_host(packed, moved, 40), cut_on_host(decoded.pixels, window, 40))


def test_host_crops_are_pillows() -> None:
    decoded = decoded_pictures()
    window = random_window(decoded)
    got = cut_on_host(decoded.pixels, window, 40)
    for position, box in enumerate(window.boxes.tolist()):
        whole = Image.fromarray(image(decoded, position).numpy())
        part = F.pil_to_tensor(F.resized_crop(whole, *box, size=[40, 40]))
        assert torch.equal(got[position], part.flip(-1) if window.flips[position] else part)
