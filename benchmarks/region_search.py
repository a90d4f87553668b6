"""Does a box around the query's foreground help? A test on collages with one relevant tile of four.

    python benchmarks/region_search.py --data cifar-100-python --out runs/region-search
    python benchmarks/region_search.py --sets glyphs --models gsp --out runs/region-search-glyphs

Searches with every test collage among the others, which are embedded whole: once with the whole
query, once with its foreground tile as a box, as in `sumpool search --box`. Models: "frozen" is the
default of `sumpool index`, for which a seed draws 6 collages per glyph class, or 12 per CIFAR
class; "gap" and "gsp" are small networks trained on such collages, tested on all test collages.
Writes results.json and table.md to --out after every run. A run takes about a minute on 2 cores.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, machine
from _writing import write
from torch.nn import functional as F
from tqdm import tqdm

from sumpool.data import CifarCollages, GlyphCollages, ImageDataset
from sumpool.models import Embedder
from sumpool.search.frozen import frozen_embedder
from sumpool.search.queries import box_mask
from sumpool.studies.shared.testbed import GLYPHS
from sumpool.training import StopConfig, TrainConfig
from sumpool.training.splits import Splits, TestSet
from sumpool.training.without_folder import train_in_memory

SETS = ("glyphs", "CIFAR-100")
MODELS = ("frozen", "gap", "gsp")
#: Collages per class for testing the frozen network.
IMAGES = {"glyphs": 6, "CIFAR-100": 12}
SPLITS = ("train", "validation", "test")


def open_splits(name: str, data: Path | None) -> Splits:
    """Open the training, validation and test classes of the collages."""
    if name == "glyphs":
        train, validation, test = (GlyphCollages(split=it) for it in SPLITS)
    else:
        train, validation, test = (CifarCollages(data, it) for it in SPLITS)
    format = "glyphs" if name == "glyphs" else "cifar-collage"
    return Splits(format, train, validation, TestSet(test))


def draw_test(name: str, data: Path | None, seed: int) -> Any:
    """Draw some collages of each test class."""
    if name == "glyphs":
        return GlyphCollages(split="test", images_per_class=IMAGES[name], seed=seed)
    drawn = CifarCollages(data, "test", seed=seed)  # type: ignore[arg-type]
    chosen = torch.cat(
        [
            (drawn.labels == label).nonzero().flatten()[seed :: len(SPLITS)][: IMAGES[name]]
            for label in drawn.labels.unique()
        ]
    )
    few = drawn.subset(chosen)
    few.foreground_tile = drawn.foreground_tile[chosen]  # type: ignore[attr-defined]
    return few


def configure(name: str, data: Path | None, pooling: str, seed: int, steps: int) -> TrainConfig:
    """Configure a run of a few minutes on one core."""
    stop = StopConfig(validate_every=steps, patience=1000, max_steps=steps)
    config = replace(GLYPHS, pool=pooling, seed=seed, stop=stop, images_per_class=4)
    if name == "glyphs":
        return config
    return replace(config, data=str(data), format="cifar-collage", crop=64)


@torch.no_grad()
def precision(model: Embedder, test: ImageDataset, tiles: torch.Tensor) -> dict[str, float]:
    """Measure P@1 of whole queries, and of queries by their foreground tile."""
    model.eval()
    side = model.preprocessing.crop
    whole, part = [], []
    for start in range(0, len(test), 32):
        places = range(start, min(start + 32, len(test)))
        pixels = torch.stack([model.preprocessing.test_pixels(test.load(it)) for it in places])
        features = model.feature_map(model.preprocessing.normalize(pixels))
        grid = model.pooling.to_tokens(features)[1]
        masks = []
        for it in places:
            row, column = divmod(int(tiles[it]), 2)
            box = (column * side / 2, row * side / 2, (column + 1) * side / 2, (row + 1) * side / 2)
            masks.append(box_mask(box, side, (grid[0], grid[1])))
        for found, mask in ((whole, None), (part, torch.stack(masks))):
            pooled = model.pooling.pool(features, mask).embedding
            found.append(F.normalize(model.embedding(pooled), dim=-1))
    gallery = torch.cat(whole)
    out = {}
    for name, vectors in (("whole", whole), ("box", part)):
        similarity = torch.cat(vectors) @ gallery.T
        nearest = similarity.fill_diagonal_(-torch.inf).argmax(1)
        out[name] = 100 * float((test.labels[nearest] == test.labels).double().mean())
    return out


def table(rows: list[dict[str, Any]]) -> str:
    """Tabulate means and standard deviations over seeds."""
    lines = ["| collages | model | P@1, whole query | P@1, box of the foreground | gain | seeds |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for name, pooling in dict.fromkeys((row["data"], row["model"]) for row in rows):
        own = [row for row in rows if (row["data"], row["model"]) == (name, pooling)]
        whole, box = ([row[key] for row in own] for key in ("whole", "box"))
        gain = [b - w for w, b in zip(whole, box, strict=True)]
        cells = " | ".join(_spread(it) for it in (whole, box, gain))
        lines.append(f"| {name} | {pooling} | {cells} | {len(own)} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def main() -> None:
    """Parse, train, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of CIFAR-100")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    if "CIFAR-100" in args.sets and args.data is None:
        parser.error("--data must be the folder of CIFAR-100 unless --sets is glyphs")
    plan = [(n, p, s) for n in args.sets for s in range(args.seeds) for p in args.models]
    rows: list[dict[str, Any]] = []
    splits: dict[str, Splits] = {}
    args.out.mkdir(parents=True, exist_ok=True)
    for name, pooling, seed in tqdm(plan, unit=" runs"):
        begun = time.perf_counter()
        if pooling == "frozen":
            test, model = draw_test(name, args.data, seed), frozen_embedder()
        else:
            splits.setdefault(name, open_splits(name, args.data))
            test = splits[name].test.query  # type: ignore[union-attr]
            config = configure(name, args.data, pooling, seed, args.steps)
            model = train_in_memory(config, splits=splits[name]).model
        tiles = test.letter_tile if name == "glyphs" else test.foreground_tile
        found = precision(model, test, tiles)
        seconds = round(time.perf_counter() - begun, 1)
        rows.append(
            {
                "data": name,
                "model": pooling,
                "seed": seed,
                **found,
                "images": len(test),
                "seconds": seconds,
            }
        )
        results = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": command_line(__file__),
            "machine": machine(torch.device("cpu")),
            "steps": args.steps,
            "rows": rows,
        }
        write(args.out, results, table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
