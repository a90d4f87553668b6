"""Foreground selection by a trained network and its pooling: where embeddings come from.

On ``cub-clutter``, the position of the photograph is known. Prints means over images, per model:

* area: share of the positions on the photograph;
* weight: share of the pooling weights on the photograph;
* norms: mean norm of the local features on the photograph, divided by that of the others;
* part: share of the embedding's length from the photograph, Σ_j p_j ⟨e, g_j⟩ over the positions j
  on the photograph, divided by the same sum over all positions.

With average pooling, weight equals area, so any excess of part over area is the network's own
selection, by the norms and the directions of its features.

    python benchmarks/selection.py --data CUB_200_2011 --out docs/results/selection MODEL …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

import sumpool
from sumpool.data import CubClutter
from sumpool.models import Embedder
from sumpool.system.files import write_atomic

MEASURES = ("area", "weight", "norms", "part")


def on_foreground(boxes: Tensor, offset: Tensor, side: int, positions: tuple[int, ...]) -> Tensor:
    """Whether the center of each position lies in the box of its image, (B, h, w)."""
    rows, columns = ((torch.arange(n) + 0.5) * side / n for n in positions)
    top, left, height, width = (boxes - torch.cat([offset, offset.new_zeros(2)])).unbind(1)
    inside = [
        (at >= low[:, None]) & (at < (low + length)[:, None])
        for at, low, length in ((rows, top, height), (columns, left, width))
    ]
    return inside[0][:, :, None] & inside[1][:, None, :]


@torch.no_grad()
def measure(
    model: Embedder, images: CubClutter, numbers: list[int], batch: int
) -> dict[str, float]:
    """Compute the means over the images with these ``numbers``."""
    if model.pooling.linear_map != "before":
        raise SystemExit(f"the pooling {model.pooling.pool_type} does not sum mapped features")
    view, side = model.preprocessing.test_pixels, model.preprocessing.crop
    device = next(model.parameters()).device
    found: list[Tensor] = []
    for start in tqdm(range(0, len(numbers), batch), unit=" batches"):
        part = numbers[start : start + batch]
        loaded = [images.load(it) for it in part]
        offset = torch.tensor([(loaded[0].height - side) / 2, (loaded[0].width - side) / 2])
        pixels = torch.stack([view(it) for it in loaded]).to(device)
        local = model.feature_map(model.preprocessing.normalize(pixels))  # (B, D, h, w)
        pooled = model.pooling.pool(local)
        assert pooled.weights is not None
        inside = on_foreground(images.boxes[part].float(), offset, side, tuple(local.shape[2:]))
        kept = inside.to(device, local.dtype)
        norms = local.norm(dim=1)
        shares = pooled.weights * torch.einsum("bdhw,bd->bhw", local, pooled.embedding)
        mean_inside = (norms * kept).sum((1, 2)) / kept.sum((1, 2))
        mean_outside = (norms * (1 - kept)).sum((1, 2)) / (1 - kept).sum((1, 2))
        columns = (
            kept.mean((1, 2)),
            (pooled.weights * kept).sum((1, 2)),
            mean_inside / mean_outside,
            (shares * kept).sum((1, 2)) / shares.sum((1, 2)),
        )
        found.append(torch.stack(columns, 1).cpu())
    return dict(zip(MEASURES, torch.cat(found).mean(0).tolist(), strict=True))


def main() -> None:
    """Measure the models, and write rows.json and table.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders of runs or models")
    parser.add_argument("--data", type=Path, required=True, help="the folder of CUB-200-2011")
    parser.add_argument("--out", type=Path, help="folder for rows.json and table.md")
    parser.add_argument("--images", type=int, default=1000, help="test images, evenly spaced")
    parser.add_argument("--batch", type=int, default=50, help="images at a time")
    options = parser.parse_args()
    images = CubClutter(options.data, "test")
    numbers = torch.linspace(0, len(images) - 1, options.images).long().tolist()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for name in options.models:
        model = sumpool.load(name).to(device).eval()
        pool = model.config.pooling
        measures = measure(model, images, numbers, options.batch)
        rows.append({"model": Path(name).name, "pooling": pool, "images": len(numbers), **measures})
    lines = ["| model | pooling | area | weight | norms | part |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        values = " | ".join(f"{row[name]:.3f}" for name in MEASURES)
        lines.append(f"| {row['model']} | {row['pooling']} | {values} |")
    print("\n".join(lines))
    if options.out is not None:
        write_atomic(options.out / "rows.json", (json.dumps(rows, indent=1) + "\n").encode())
        write_atomic(options.out / "table.md", ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
