"""The gallery of a run on disk.

``exhibits.json`` is the index, ``images/`` contains thumbnails as JPEG, and ``arrays.npz`` the
pooling weights, the usage of the prototypes and the map of the embedding.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.report.run.gallery import EmbeddingMap, Gallery, Neighbor, Prototype, Query, Region
from sumpool.system.documents import load_json
from sumpool.system.files import StoreError

#: Incremented when files of the previous format could be misread.
FORMAT = 1
#: Fields of the map in the index; its points are among the arrays.
_MAP = ("class_names", "colored", "method")
INDEX, ARRAYS, IMAGES = "exhibits.json", "arrays.npz", "images"


def write_gallery(gallery: Gallery, folder: Path) -> Path:
    """Write the gallery to ``folder``, replacing an older one.

    It is written to a temporary folder and then renamed: an interrupt leaves either the old gallery
    or the new one.

    Returns:
        ``folder``.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / IMAGES).mkdir(parents=True)
    for name, data in gallery.images.items():
        (partial / IMAGES / _plain(name, partial)).write_bytes(data)
    arrays: dict[str, NDArray[Any]] = {f"w:{k}": v for k, v in gallery.weights.items()}
    if gallery.usage is not None:
        arrays["usage"] = gallery.usage
    chart = gallery.embedding_map
    if chart is not None:
        arrays["map_points"], arrays["map_labels"] = chart.points, chart.labels
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    (partial / ARRAYS).write_bytes(buffer.getvalue())
    index = {
        "format": FORMAT,
        "source": gallery.source,
        "queries": gallery.queries,
        "worst": [asdict(query) for query in gallery.worst],
        "sample": [asdict(query) for query in gallery.sample],
        "prototypes": [asdict(prototype) for prototype in gallery.prototypes],
        "map": chart and {name: getattr(chart, name) for name in _MAP},
        "notes": gallery.notes,
    }
    text = json.dumps(index, ensure_ascii=False, allow_nan=False, indent=1)
    (partial / INDEX).write_text(text, encoding="utf-8")
    before = _before(folder)
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)
        os.replace(folder, before)
    os.replace(partial, folder)
    shutil.rmtree(before, ignore_errors=True)
    return folder


def read_gallery(folder: Path) -> Gallery | None:
    """Read the gallery in ``folder``; None if there is none.

    Raises:
        StoreError: If a file is missing or damaged; the message names it.
    """
    if not folder.exists():  # an interrupt may have left it under the other name
        folder = _before(folder)
    path = folder / INDEX
    if not path.is_file():
        return None
    arrays = _read_arrays(folder / ARRAYS)
    try:
        index = load_json(path)
        if index["format"] != FORMAT:
            raise ValueError(f"it has the format {index['format']}, and {FORMAT} is read")
        worst = tuple(_query(it) for it in index["worst"])
        sample = tuple(_query(it) for it in index["sample"])
        prototypes = tuple(_prototype(it) for it in index["prototypes"])
        names = dict.fromkeys(
            [query.image for query in (*worst, *sample)]
            + [neighbor.image for query in (*worst, *sample) for neighbor in query.neighbors]
            + [region.image for prototype in prototypes for region in prototype.regions]
        )
        return Gallery(
            source=str(index["source"]),
            queries=int(index["queries"]),
            worst=worst,
            sample=sample,
            weights={k.removeprefix("w:"): v for k, v in arrays.items() if k.startswith("w:")},
            usage=arrays.get("usage"),
            prototypes=prototypes,
            embedding_map=_map(index["map"], arrays),
            notes=tuple(index["notes"]),
            images={name: _read_image(folder, name) for name in names},
        )
    except (ValueError, TypeError, KeyError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{path} is damaged: {reason}") from error


def _before(folder: Path) -> Path:
    """Path of the old gallery while it is being replaced."""
    return folder.with_name(folder.name + ".before")


def _query(data: Mapping[str, Any]) -> Query:
    neighbors = tuple(Neighbor(**it) for it in data["neighbors"])
    return Query(**{**data, "neighbors": neighbors})


def _prototype(data: Mapping[str, Any]) -> Prototype:
    regions = tuple(Region(**{**it, "box": tuple(it["box"])}) for it in data["regions"])
    return Prototype(**{**data, "regions": regions})


def _map(data: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[Any]]) -> EmbeddingMap | None:
    if data is None:
        return None
    return EmbeddingMap(
        arrays["map_points"],
        arrays["map_labels"],
        tuple(data["class_names"]),
        tuple(data["colored"]),
        data["method"],
    )


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # From memory, because NumPy would leave the handle of a damaged file open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is damaged: {error}") from error


def _read_image(folder: Path, name: str) -> bytes:
    path = folder / IMAGES / _plain(name, folder)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    if not (data.startswith(b"\xff\xd8") and data.endswith(b"\xff\xd9")):
        raise StoreError(f"{path} is damaged: it is no whole JPEG file")
    return data


def _plain(name: str, folder: Path) -> str:
    # No file outside of the folder is read into a page, whatever the index says.
    if Path(name).name != name or name.startswith("."):
        raise StoreError(f"{folder / INDEX} is damaged: {name!r} is no name of a thumbnail")
    return name
