"""The gain of a few minutes on a CPU: `sumpool train --recipe auto` on 2,000 photographs.

    python benchmarks/minutes.py --data CUB_200_2011 --out runs/minutes

For each split, draws classes of the training half of CUB until they have 2,000 photographs, trains
on the folder of these classes without any cache, and measures the time from the folder to the
finished run. The model is then evaluated on all classes of the other half, and compared with
average pooling of the frozen network on the same images. --tuning, for choosing options given by
--set, evaluates on the classes of the training half that were not drawn, without opening the test
set; it keeps folders and features in --work for the next options. Finished splits are kept in
--out, and the same command resumes. Takes about 5 minutes per split on two idle cores, and 3 for
the features of the test set.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _machine import command_line, machine
from _writing import write
from tqdm import tqdm

from sumpool.bench.settings import parse_settings
from sumpool.data import ImageDataset, open_dataset, open_map_feed
from sumpool.evaluation import embed_images, retrieval_metrics
from sumpool.models import Embedder, load
from sumpool.models.backbones import run_backbone
from sumpool.models.frozen import cut
from sumpool.models.pretrained import pretrained_embedder
from sumpool.protocols.gains import t_interval
from sumpool.system.memory import reuse_freed_memory
from sumpool.training import run_training, with_recipe

METRICS = ("precision_at_1", "mean_average_precision_at_r")


def draw_classes(dataset: ImageDataset, images: int, seed: int) -> list[int]:
    """Draw random classes until they have at least ``images`` images."""
    counts = {int(label): int((dataset.labels == label).sum()) for label in dataset.labels.unique()}
    order = np.random.default_rng(seed).permutation(sorted(counts)).tolist()
    totals = np.cumsum([counts[label] for label in order])
    return sorted(order[: int(np.searchsorted(totals, images)) + 1])


def make_folder(dataset: ImageDataset, classes: list[int], folder: Path) -> int:
    """Copy the images of ``classes`` into one folder per class; return their number."""
    wanted = torch.isin(dataset.labels, torch.tensor(classes)).nonzero().flatten().tolist()
    for index in wanted:
        source = Path(dataset.item_name(index))
        target = folder / source.parent.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return len(wanted)


def scores(model: Embedder, dataset: ImageDataset, features: Path) -> dict[str, float]:
    """Compute the metrics of a model with the packaged backbone, in percent.

    The maps before the trainable blocks are the same for all models, and kept in ``features``.
    """
    frozen, learned, digest = cut(model.eval(), with_recipe("auto", {}, gpu=False).learned_blocks)
    feed = open_map_feed(
        dataset,
        model.preprocessing,
        partial(run_backbone, frozen),
        identity=digest,
        cache_dir=features,
    )
    found = embed_images(learned.eval(), feed)
    metrics = retrieval_metrics(found.vectors, dataset.labels, ks=(1,))
    return {name: 100 * metrics[name] for name in METRICS}


def run_split(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Train on the photographs of one split, and evaluate before and after."""
    work = args.work / str(seed)
    if not args.tuning:
        shutil.rmtree(work, ignore_errors=True)
    learned = open_dataset(args.data, "auto", "train")
    classes = draw_classes(learned, args.images, seed)
    count = make_folder(learned, classes, work / "photos")
    given = {
        "data": str(work / "photos"),
        "out": str(work / "run"),
        "cache_dir": str(work / "features"),
        "minutes": args.minutes,
        "seed": seed,
        "hardware.accelerator": "cpu",
        **parse_settings(args.set),
    }
    begun = time.monotonic()
    result = run_training(with_recipe("auto", given, gpu=False))
    seconds = time.monotonic() - begun
    if args.tuning:
        rest = (~torch.isin(learned.labels, torch.tensor(classes))).nonzero().flatten()
        unseen = learned.subset(rest.tolist())
    else:
        unseen = open_dataset(args.data, "auto", "test")
    features = args.work / "unseen"
    row = {
        "seed": seed,
        "classes": len(classes),
        "images": count,
        "steps": result.outcome.steps,
        "seconds": round(seconds, 1),
        "unseen_images": len(unseen),
        "frozen": scores(pretrained_embedder(), unseen, features),
        "trained": scores(load(result.folder), unseen, features),
    }
    shutil.rmtree(work / "run" if args.tuning else work)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Tabulate the splits, and the mean gain with its 95 % interval."""
    lines = [
        "| split | photographs | classes | seconds | P@1, frozen | P@1, trained | gain |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    name, gains = METRICS[0], []
    for row in rows:
        gains.append(row["trained"][name] - row["frozen"][name])
        lines.append(
            f"| {row['seed']} | {row['images']:,} | {row['classes']} | {row['seconds']:.0f} | "
            f"{row['frozen'][name]:.2f} | {row['trained'][name]:.2f} | {gains[-1]:+.2f} |"
        )
    interval = t_interval(np.array(gains), 0.95)
    if interval is not None:
        mean, low, high = interval
        ends = f"{low:+.2f} to {high:+.2f}"
        lines.append(f"\nMean gain {mean:+.2f} points of P@1, 95 % interval {ends}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse, run missing splits, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    args.work = args.work or args.out / "work"
    reuse_freed_memory()  # as the command line does
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.json"
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    known = {row["seed"] for row in rows}
    for seed in tqdm([it for it in range(args.splits) if it not in known], unit="split"):
        rows = sorted([*rows, run_split(args, seed)], key=lambda row: row["seed"])
        results = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": command_line(__file__),
            "machine": machine(torch.device("cpu")),
            "rows": rows,
        }
        write(args.out, results, table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
