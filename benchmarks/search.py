"""Time searches, vector stores, and the building of an index.

    python benchmarks/search.py --data CUB_200_2011/images --out docs/results/search-cpu  # an hour
    python benchmarks/search.py --data photos --images 20 --vectors 5000 --out runs/x     # a minute

  images   `sumpool index` against `sumpool embed` with the same model, and an update with 1 % new
           images; each in its own process, in rounds
  vectors  a million vectors of 128 dimensions: bare faiss against our stores and `Index.search` on
           the same vectors, in turn on each query; recall@10 of 200 queries that are not among them

There are two sets of vectors: a mixture of 2,000 Gaussians, and the embeddings of the photographs,
reduced to 128 dimensions by PCA and repeated with noise (cosine .9 to the original). All times are
processor time, because the machine may be loaded; wall-clock times are stored too. Writes
results.json and table.md to --out after every part; --parts keeps the results of the other part.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import torch
from _machine import command_line, flags, machine
from _tables import check_target, targets_table
from _writing import write
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from tqdm import tqdm

from sumpool.data.sets.files import image_paths
from sumpool.search import Index
from sumpool.search.folder import SCHEMA, file_digest, read_header, write_header, write_images
from sumpool.search.stores.approximate import CANDIDATES, ApproximateIndex
from sumpool.search.stores.base import VectorIndex
from sumpool.search.stores.catalog import open_store, store_file

Vectors = NDArray[np.float32]
DIMENSIONS, QUERIES, K = 128, 200, 10
COMPONENTS, SPREAD = 2_000, 0.7
PARTS = ("images", "vectors")
SETS = ("mixture", "photographs")


def command(*arguments: str | Path) -> dict[str, float]:
    """Run a command of the package; return its processor and wall-clock time in seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sumpool", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": time.perf_counter() - begun}


def copy_images(data: Path, count: int, folder: Path) -> list[str]:
    """Copy ``count`` evenly spaced images below ``data``; return their names."""
    names = image_paths(data)[0]
    chosen = [names[place] for place in np.linspace(0, len(names) - 1, count).astype(int)]
    for name in chosen:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / name, folder / name)
    return chosen


def measure_images(data: Path, count: int, rounds: int, work: Path) -> dict[str, Any]:
    """Time `sumpool index` against `sumpool embed`, and an update."""
    new = max(1, count // 100)
    photos, one = work / "photos", work / "one"
    chosen = copy_images(data, count + new, photos)
    later = chosen[count:]
    for name in later:
        (work / "later" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(photos / name, work / "later" / name)
    (one / chosen[0]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(photos / chosen[0], one / chosen[0])
    start = command("index", "--data", one, "--out", work / "index-of-one", "--no_labels")
    times: dict[str, list[dict[str, float]]] = {"embed": [], "index": []}
    out = work / "embedded.parquet"
    for turn in tqdm(range(rounds), "images", unit="round"):
        index = work / f"index-{turn}"
        calls: dict[str, Callable[[], dict[str, float]]] = {
            "index": lambda index=index: command("index", "--data", photos, "--out", index),  # type: ignore[misc]
            "embed": lambda: command(
                *("embed", work / "index-of-one" / "model", "--data", photos),
                *("--out", out, "--overwrite"),
            ),
        }
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            times[name].append(calls[name]())
    for name in later:
        shutil.move(work / "later" / name, photos / name)
    updated = command("index", work / "index-0", "--update")
    assert len(Index.open(work / "index-0")) == len(set(chosen))
    built = statistics.median(it["cpu"] for it in times["index"])
    return {
        "images": count,
        "start_up": start,
        "times": times,
        "update": updated,
        "new": new,
        "rate_ratio": statistics.median(
            a["cpu"] / b["cpu"] for a, b in zip(times["embed"], times["index"], strict=True)
        ),
        "update_share": (updated["cpu"] - start["cpu"]) / built,
        "images_per_cpu_second": count / (built - start["cpu"]),
    }


def mixture(count: int, seed: int) -> Vectors:
    """Draw unit vectors around the centers of a mixture."""
    centers = np.random.default_rng(0).standard_normal((COMPONENTS, DIMENSIONS), np.float32)
    random = np.random.default_rng(seed)
    out = SPREAD * random.standard_normal((count, DIMENSIONS), np.float32)
    out += centers[random.integers(0, COMPONENTS, count)]
    return unit(out)


def repeated(embeddings: Vectors, count: int, seed: int) -> Vectors:
    """Repeat embeddings about equally often, with noise, as unit vectors."""
    size = min(DIMENSIONS, *embeddings.shape)
    base = unit(PCA(size, random_state=0).fit_transform(embeddings).astype(np.float32))
    random = np.random.default_rng(seed)
    # Noise of norm tan(α) rotates a vector by α; cos α = .9.
    noise = float(np.tan(np.arccos(0.9)) / np.sqrt(size))
    out = noise * random.standard_normal((count, size), np.float32)
    out += base[random.integers(0, len(base), count)]
    return unit(out)


def unit(vectors: Vectors) -> Vectors:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def compared(calls: dict[str, Callable[[Vectors], Any]], queries: Vectors) -> dict[str, Any]:
    """Measure milliseconds per query, with all calls in turn on one query at a time.

    The first call loads data that the others find in the processor's cache: all are first in turn.
    """
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():  # the first search reads memory-mapped files
        for query in queries:
            call(query[None])
    for turn, query in enumerate(queries):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            begun = time.process_time()
            calls[name](query[None])
            times[name].append(1e3 * (time.process_time() - begun))
    # Sums, because the timer has steps of 1 µs and queries take less than a millisecond.
    total = {name: sum(values) for name, values in times.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = total["bare"]
    return {"ms": medians, "ratio": {name: value / bare for name, value in total.items()}}


def recall(found: NDArray[np.int64], expected: NDArray[np.int64]) -> float:
    pairs = zip(found, expected, strict=True)
    return float(np.mean([np.isin(wanted, got).mean() for got, wanted in pairs]))


def measure_vectors(
    name: str,
    vectors: Vectors,
    queries: Vectors,
    work: Path,
    args: argparse.Namespace,
    like: Path,
) -> dict[str, Any]:
    """Time stores against bare faiss on the same vectors."""
    count, size = vectors.shape
    np.save(work / "vectors.npy", vectors)
    mapped = np.load(work / "vectors.npy", mmap_mode="r")
    ids, labels = np.arange(count), [f"class {row % 100}" for row in range(count)]
    out: dict[str, Any] = {"set": name, "vectors": count, "dimensions": size, "stores": {}}
    flat = faiss.IndexFlatIP(size)
    flat.add(vectors)
    expected = flat.search(queries, K)[1]
    for kind in ["exact", *args.kinds]:
        begun, clock = time.process_time(), time.perf_counter()
        faiss.omp_set_num_threads(args.threads)
        store = open_store(kind, work, ids, mapped, labels, build=True)
        faiss.omp_set_num_threads(1)  # waiting threads count as working
        row: dict[str, Any] = {
            "build_cpu_s": time.process_time() - begun,
            "build_s": time.perf_counter() - clock,
            "recall": recall(store.search(queries, K).ids, expected),
        }
        own = {}
        if kind == "exact" or name == "mixture":
            index = folder_of(like, work / "folder", mapped, labels, kind)
            own = {"Index.search": index_search(index, queries)}
            store.close()
            store = index._store
        calls = {"bare": bare(kind, flat, store), "store": lambda it, s=store: s.search(it, K)}
        calls |= own
        if kind != "exact":
            file = store_file(work, kind)
            row |= {"bytes": file.stat().st_size, "reach": store._reach}  # type: ignore[attr-defined]
        row |= compared(calls, queries[: 50 if kind == "exact" else None])
        out["stores"][kind] = row
        store.close()
    for kind in args.kinds:
        store_file(work, kind).unlink()
    return out


def bare(kind: str, flat: Any, store: VectorIndex) -> Callable[[Vectors], Any]:
    """Return the bare faiss search in the index of the store."""
    if kind == "exact":
        return lambda query: flat.search(query, K)
    assert isinstance(store, ApproximateIndex)
    inner = faiss.downcast_index(store._file.index)
    # faiss.contrib.torch_utils, once imported, replaces this search by one without parameters.
    search = getattr(inner, "search_numpy", inner.search)
    if kind == "hnsw":
        options = faiss.SearchParametersHNSW(efSearch=store._reach)
        return lambda query: search(query, K, params=options)
    options = faiss.SearchParametersIVF(nprobe=store._reach)
    return lambda query: search(query, K * CANDIDATES, params=options)


def folder_of(like: Path, folder: Path, vectors: Any, labels: list[str], kind: str) -> Index:
    """Create an index folder ``like`` another one, but with other vectors."""
    count, size = vectors.shape
    folder.mkdir(exist_ok=True)
    header = replace(read_header(like), generation="made", count=count, dim=size, store=kind)
    shutil.copy(vectors.filename, folder / header.vectors_file)
    if kind != "exact":
        shutil.copy(store_file(vectors.filename.parent, kind), store_file(folder, kind))
    columns: dict[str, Any] = {
        "id": np.arange(count),
        "path": [f"{row}.jpg" for row in range(count)],
        "label": labels,
        "content_hash": ["0" * 64] * count,
        "z": pa.nulls(count, pa.list_(pa.float32())),
    }
    arrays = [pa.array(columns.get(it.name, np.zeros(count, int)), it.type) for it in SCHEMA]
    write_images(folder / header.images_file, pa.Table.from_arrays(arrays, schema=SCHEMA))
    header = replace(
        header,
        vectors_digest=file_digest(folder / header.vectors_file),
        images_digest=file_digest(folder / header.images_file),
    )
    write_header(folder, header)
    return Index.open(folder)


def index_search(index: Index, queries: Vectors) -> Callable[[Vectors], Any]:
    """Return `Index.search` as a function of an embedded query."""
    from sumpool.search.queries import Embedded

    def search(query: Vectors) -> Any:
        embedded = Embedded.__new__(Embedded)
        object.__setattr__(embedded, "vector", torch.from_numpy(query[0]))
        return index.search(embedded, K)

    search(queries[:1])
    return search


def targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare the results with their targets."""
    found: list[dict[str, Any]] = []
    hold = partial(check_target, found)
    images = results.get("images")
    if images:
        hold("images/s of index over embed", images["rate_ratio"], "≥", 0.95)
        hold("update of 1 % less start-up over a build", images["update_share"], "≤", 0.02)
    for part in results.get("vectors", []):
        for kind, row in part["stores"].items():
            where = f"{kind}, {part['set']}"
            if kind != "exact":
                hold(f"recall@10 ({where})", row["recall"], "≥", 0.98)
            if kind != "ivfpq":
                for name in [it for it in row["ratio"] if it != "bare"]:
                    hold(f"{name} over bare faiss ({where})", row["ratio"][name], "≤", 1.10)
    return found


def markdown(results: dict[str, Any]) -> str:
    """Format the results as tables."""
    parts = [
        f"{results['machine']['device_name']}, torch {results['machine']['torch']}, faiss "
        f"{faiss.__version__}, {results['date'][:10]}; times are processor time.",
        targets_table(results["targets"]),
    ]
    if images := results.get("images"):
        lines = [f"| {images['images']:,} images | processor [s] | clock [s] |", "|---|---:|---:|"]
        named = {"index of one image": [images["start_up"]], **images["times"]}
        named[f"update with {images['new']} new"] = [images["update"]]
        for name, values in named.items():
            cpu, wall = (", ".join(f"{it[key]:.1f}" for it in values) for key in ("cpu", "wall"))
            lines.append(f"| {name} | {cpu} | {wall} |")
        parts.append("\n".join(lines))
    lines = [
        "| vectors | store | recall@10 | build, processor [s] | clock [s] | file [MB] | reach | "
        "bare faiss [ms] | ours [ms] |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for part in results.get("vectors", []):
        for kind, row in part["stores"].items():
            size = f"{row['bytes'] / 1e6:.0f}" if "bytes" in row else "–"
            lines.append(
                f"| {part['set']}, {part['vectors']:,} × {part['dimensions']} | {kind} | "
                f"{row['recall']:.3f} | {row['build_cpu_s']:.1f} | {row['build_s']:.1f} | {size} | "
                f"{row.get('reach', '–')} | {row['ms']['bare']:.3f} | {row['ms']['store']:.3f} |"
            )
    return "\n\n".join([*parts, "\n".join(lines)]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--images", type=int, default=1000, help="default 1000")
    parser.add_argument("--index", type=Path, help="of photographs to repeat (default: made)")
    parser.add_argument("--vectors", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--kinds", nargs="*", default=["ivfpq", "hnsw"], help="approximate stores")
    parser.add_argument("--rounds", type=int, default=2, help="of building (default 2)")
    parser.add_argument("--threads", type=int, default=1, help="that build stores (default 1)")
    args = parser.parse_args(arguments)
    stored = args.out / "results.json"
    results: dict[str, Any] = json.loads(stored.read_text()) if stored.is_file() else {}
    results |= {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(torch.device("cpu")) | {"faiss": faiss.__version__},
        "flags": flags(),
    }
    for part in args.parts:
        results[part] = None if part == "images" else []
        results.setdefault("runs", {})[part] = {
            "command": command_line(__file__, arguments),
            "load_average": [os.getloadavg()],
        }

    def store(part: str) -> None:
        results["targets"] = targets(results)
        results["runs"][part]["load_average"].append(os.getloadavg())
        write(args.out, results, markdown(results))

    with tempfile.TemporaryDirectory(prefix="search-") as folder:
        work = Path(folder)
        if "images" in args.parts:
            results["images"] = measure_images(args.data, args.images, args.rounds, work)
            store("images")
        if "vectors" in args.parts:
            index = args.index or work / "index-0"
            if not index.exists():
                copy_images(args.data, args.images, work / "photos")
                command("index", "--data", work / "photos", "--out", index)
            embeddings = np.array(Index.open(index).vectors)
            sets: dict[str, Callable[[int, int], Vectors]] = {
                "mixture": mixture,
                "photographs": lambda n, seed: repeated(embeddings, n, seed),
            }
            for name in args.sets:
                draw = sets[name]
                vectors, queries = draw(args.vectors, 1), draw(QUERIES, 2)
                results["vectors"].append(
                    measure_vectors(name, vectors, queries, work, args, index)
                )
                store("vectors")
    print(targets_table(results["targets"]))


if __name__ == "__main__":
    main()
