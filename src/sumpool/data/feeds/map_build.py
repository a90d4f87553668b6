"""Computation of the feature maps of a data set's images by a frozen network."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from sumpool.data.base import Broken, BrokenImageError, DataError, ImageDataset
from sumpool.data.feeds.cache_build import fingerprint
from sumpool.data.feeds.map_files import MapFile
from sumpool.data.feeds.memory import check_capacity
from sumpool.data.feeds.threads import map_ahead
from sumpool.data.views.boxes import view_draws
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.system.cores import usable_cores
from sumpool.system.wording import counted

logger = logging.getLogger(__name__)

#: Number of views per network call.
_BATCH = 64
#: Interval in seconds at which computed maps are committed to disk.
_COMMIT_SECONDS = 20.0
#: Seed of the random views, fixed so that runs with different seeds share them.
_SEED = 0
#: Settings that affect only the random views, not the central one.
_OF_RANDOM_VIEWS = ("augment", "flip", "area", "aspect", "area_share")


def store_maps(
    dataset: ImageDataset,
    rows: NDArray[np.int64],
    preprocessing: Preprocessing,
    network: Callable[[Tensor], Tensor],
    *,
    identity: str,
    views: int,
    folder: Path,
    device: torch.device,
    threads: int | None,
    progress: bool,
) -> list[Tensor]:
    """Compute missing maps of ``rows`` and return the maps per view, float16 (len(dataset), …).

    View 0 is the central one. View v > 0 of an image is a pure function of v and its row. The other
    arguments are those of :func:`~sumpool.data.feeds.map_feed.open_map_feed`.
    """
    side = preprocessing.crop
    if preprocessing.train_side != side:
        raise ValueError(f"train_crop must be None or crop, {side}, got {preprocessing.train_crop}")
    with torch.inference_mode():
        blank = network(torch.zeros(1, 3, side, side, device=device))
    shape = tuple(blank.shape[1:])
    base = f"{fingerprint(dataset, preprocessing.resize)} {identity} {shape}"
    keys = [_key(base, preprocessing, view) for view in range(views)]
    files = [MapFile(folder, key, len(dataset), shape) for key in keys]
    with contextlib.ExitStack() as held:
        for file in sorted(files, key=lambda file: file.path):  # same order everywhere: no deadlock
            held.enter_context(file.writing())
        wanted: dict[int, list[int]] = {}
        for view, file in enumerate(files):
            for row in file.missing(rows).tolist():
                wanted.setdefault(row, []).append(view)
        if wanted:
            _compute(dataset, wanted, preprocessing, network, files, device, threads, progress)
    return [file.maps() for file in files]


def _key(base: str, preprocessing: Preprocessing, view: int) -> str:
    settings = asdict(preprocessing)
    del settings["train_crop"]  # has no effect: it equals crop or is None
    if view == 0:
        settings = {name: it for name, it in settings.items() if name not in _OF_RANDOM_VIEWS}
    text = f"maps 1 {base} {view} {sorted(settings.items())}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compute(
    dataset: ImageDataset,
    wanted: dict[int, list[int]],
    preprocessing: Preprocessing,
    network: Callable[[Tensor], Tensor],
    files: list[MapFile],
    device: torch.device,
    threads: int | None,
    progress: bool,
) -> None:
    """Compute the wanted views of each row and write their maps to the files."""
    count = sum(map(len, wanted.values()))
    needed, folder = count * files[0].row_bytes, files[0].path.parent
    logger.info(
        "features of %s, %s: %.2f GB in %s",
        counted(len(wanted), "image"),
        counted(count, "view"),
        needed / 1e9,
        folder,
    )
    check_capacity(needed, shutil.disk_usage(folder).free, f"of disk in {folder}", "feature maps")

    def decode(row: int) -> Tensor | BrokenImageError:
        try:
            image = preprocessing.resized(dataset.load(row))
        except BrokenImageError as error:
            return error
        return torch.stack([_pixels(preprocessing, image, row, view) for view in wanted[row]])

    def flush() -> None:
        images = preprocessing.normalize(torch.cat(pixels).to(device))
        with torch.inference_mode():
            maps = network(images).to(torch.float16).cpu()
        for (row, view), values in zip(places, maps, strict=True):
            if not bool(values.isfinite().all()):
                raise DataError(
                    f"the features of {dataset.item_name(row)} are not finite in float16: the "
                    "weights of the network are damaged, or it cannot be used with freeze_backbone"
                )
            files[view].write(row, values.numpy())
        pixels.clear()
        places.clear()

    pixels: list[Tensor] = []
    places: list[tuple[int, int]] = []
    broken: list[Broken] = []
    threads = usable_cores() if threads is None else threads
    begun = saved = time.monotonic()
    try:
        with (
            contextlib.closing(map_ahead(decode, wanted, threads, ahead=4 * threads)) as decoded,
            tqdm(decoded, "features", len(wanted), disable=not progress, unit="image") as bar,
        ):
            for row, images in zip(wanted, bar, strict=True):
                if isinstance(images, BrokenImageError):
                    broken.append((dataset.item_name(row), images.reason))
                    continue
                pixels.append(images)
                places += [(row, view) for view in wanted[row]]
                if len(places) >= _BATCH:
                    flush()
                if time.monotonic() - saved > _COMMIT_SECONDS:
                    _commit(files)
                    saved = time.monotonic()
            if places:
                flush()
    finally:
        _commit(files)
    if broken:
        raise BrokenImageError.of(broken)
    seconds = time.monotonic() - begun
    logger.info("computed in %.0f s, %.1f views/s", seconds, count / seconds)


def _pixels(preprocessing: Preprocessing, image: Image.Image, row: int, view: int) -> Tensor:
    if view == 0:
        return preprocessing.test_of_resized(image)
    return preprocessing.view_of_resized(image, view_draws(_SEED, view, row, 1)[0])


def _commit(files: list[MapFile]) -> None:
    for file in files:
        file.commit()
