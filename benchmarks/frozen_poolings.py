"""Which pooling retrieves best on a frozen pretrained network.

    python benchmarks/frozen_poolings.py --data CUB_200_2011 --out runs/frozen-poolings

Embeds 30 images of each of 50 training classes (CUB: classes 1 to 50) once with the packaged
ImageNet network, or with --backbone and --weights, and applies every pooling without parameters to
its last map; all vectors are ℓ2 normalized. Some poolings are also applied only to the third of the
positions with the largest norms, to show how well norms select by themselves. Writes results.json
and table.md to --out. `sumpool index` without a model uses the best one (`sumpool.search.frozen`).
Takes about 5 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, machine
from _writing import write
from tqdm import tqdm

from sumpool.data import ImageDataset, open_dataset, open_feed
from sumpool.evaluation import retrieval_metrics
from sumpool.models.backbones import build_backbone
from sumpool.models.config import EmbedderConfig
from sumpool.pooling import build_pooling

#: Names in the table → pooling and its options.
POOLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "GAP": ("gap", {}),
    "GMP": ("gmp", {}),
    "GAP+GMP": ("gap+gmp", {}),
    "GeMean p=2": ("gemean", {"p": 2.0}),
    "GeMean p=3": ("gemean", {"p": 3.0}),
    "GeMean p=4": ("gemean", {"p": 4.0}),
    "GeMean p=6": ("gemean", {"p": 6.0}),
    "CroW": ("crow", {}),
    "GeMax λ=1": ("gemax", {"ridge": 1.0}),
    "GeMax λ=100": ("gemax", {"ridge": 100.0}),
    "GeMax λ=1000": ("gemax", {"ridge": 1000.0}),
    "WELDON k=3": ("weldon", {"k": 3}),
}
#: Poolings that are also applied to the third of the positions with the largest norms.
SELECTED = ("GAP", "GeMean p=3", "GeMean p=6")


def choose(dataset: ImageDataset, classes: int, images: int) -> ImageDataset:
    """Select the first images of the first classes."""
    chosen = []
    for label in dataset.labels.unique()[:classes].tolist():
        chosen += (dataset.labels == label).nonzero().flatten()[:images].tolist()
    return dataset.subset(chosen)


def largest_third(maps: torch.Tensor) -> torch.Tensor:
    """Select the third of the positions of maps (B, C, h, w) with largest norms, (B, C, 1, n)."""
    local = maps.flatten(2)
    kept = local.norm(dim=1, keepdim=True).topk(local.shape[2] // 3, dim=2).indices
    return local.gather(2, kept.expand(-1, local.shape[1], -1)).unsqueeze(2)


@torch.no_grad()
def measure(
    data: Path, classes: int, images: int, backbone: str, weights: str
) -> list[dict[str, Any]]:
    """Measure the retrieval metrics of every pooling on the same maps."""
    network, layout, preprocessing = build_backbone(backbone, weights=weights)
    if layout.format != "NCHW":
        raise SystemExit(
            f"--backbone must give maps (B, C, h, w), {backbone} gives {layout.format}"
        )
    network.eval()
    dataset = choose(open_dataset(data, "auto", "train"), classes, images)
    feed = open_feed(dataset, preprocessing, workers=0)
    channels = layout.channels
    layers = {name: build_pooling(kind, channels, **options).eval()
              for name, (kind, options) in POOLINGS.items()}  # fmt: skip
    names = {name: f"{name}, largest third" for name in SELECTED}
    vectors: dict[str, list[torch.Tensor]] = {name: [] for name in [*layers, *names.values()]}
    with tqdm(total=len(dataset), unit=" images") as bar:
        for batch in feed.test_batches(batch_size=32):
            maps = network(batch.images)
            parts = largest_third(maps)
            pooled = {name: layer(maps) for name, layer in layers.items()}
            pooled |= {names[name]: layers[name](parts) for name in SELECTED}
            for name, vector in pooled.items():
                vectors[name].append(torch.nn.functional.normalize(vector, dim=-1))
            bar.update(len(maps))
    rows = []
    for name, found in vectors.items():
        metrics = retrieval_metrics(torch.cat(found), dataset.labels, ks=(1, 10))
        shares = {key: round(100 * it, 2) for key, it in metrics.items() if "queries" not in key}
        rows.append({"pooling": name, "images": len(dataset), **shares})
    return rows


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--backbone", default=EmbedderConfig.backbone)
    parser.add_argument("--weights", default=EmbedderConfig.weights, help="packaged, or a file")
    args = parser.parse_args()
    rows = measure(args.data, args.classes, args.images, args.backbone, args.weights)
    results = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command_line(__file__),
        "machine": machine(torch.device("cpu")),
        "rows": rows,
    }
    keys = ("precision_at_1", "recall_at_10", "r_precision", "mean_average_precision_at_r")
    lines = ["| pooling | P@1 | R@10 | R-precision | MAP@R |", "|---" * (1 + len(keys)) + "|"]
    lines += [
        f"| {row['pooling']} | {' | '.join(f'{row[key]:.2f}' for key in keys)} |"
        for row in sorted(rows, key=lambda it: -it[keys[-1]])
    ]
    write(args.out, results, "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
