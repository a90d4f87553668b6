"""Folders of runs that no training made, whole or with parts missing, and a reader of pages."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from sumpool.report.run.gallery import (
    EmbeddingMap,
    Gallery,
    Neighbor,
    Prototype,
    Query,
    Region,
)
from sumpool.report.run.gallery_files import write_gallery

CLASSES = ("jay", "<wren>", "_$owl$")
#: Tags without an end.
VOID = ("img", "meta", "wbr", "br")


class PageReader(HTMLParser):
    """Checks that tags are closed in order; collects what is referred to, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.ids: list[str] = []
        self.alts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe")
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "srcset"):
                self.links.append(value or "")
            elif name == "href":
                self.anchors.append(value or "")
            elif name == "id":
                self.ids.append(value or "")
            elif name == "alt":
                self.alts.append(value or "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


def thumbnail(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (24, 24), (shade, 90, 160)).save(buffer, "JPEG")
    return buffer.getvalue()


def make_gallery(pool: str = "gsp", count: int = 8, seed: int = 0) -> Gallery:
    names = [f"image-{number:07d}.jpg" for number in range(10)]
    images = {name: thumbnail(20 * number) for number, name in enumerate(names)}

    def hit(number: int, right: bool) -> Neighbor:
        return Neighbor(
            names[number], f"{number}.png", CLASSES[not right], 0.9 - number / 20, right
        )

    def query(number: int, score: float | None) -> Query:
        hits = tuple(hit(other, other % 2 == 0) for other in range(3))
        name = f"bird <{number}>.png"
        return Query(names[number], name, CLASSES[0], 0 if score is None else 2, score, hits)

    worst = tuple(query(number, number / 10) for number in range(count))
    sample = (query(8, 0.75), query(9, None))
    draws = np.random.default_rng(seed)
    grid = (3, 4)
    weights = {name: np.ones(grid, np.float32) for name in names}
    prototypes: tuple[Prototype, ...] = ()
    if pool == "gsp":
        weights = {name: draws.dirichlet(np.ones(12)).reshape(grid) * 12 for name in names}
        region = Region(names[0], "0.png", CLASSES[1], 1.25, (0.25, 0.5, 0.5, 1.0))
        prototypes = (Prototype(7, 0.5, (region, region)), Prototype(0, 0.25, (region,)))
    chart = EmbeddingMap(
        draws.normal(size=(20, 2)).astype(np.float32),
        np.arange(20) % 3,
        CLASSES,
        (2, 0),
        "PCA",
    )
    return Gallery(
        "test",
        1300,
        worst,
        sample,
        weights={name: value.astype(np.float32) for name, value in weights.items()},
        usage=np.array([0.25] + [0.0357] * 6 + [0.5], np.float32) if pool == "gsp" else None,
        prototypes=prototypes,
        embedding_map=chart,
        notes=() if pool == "gsp" else ("The pooling has no prototypes.",),
        images=images,
    )


def metrics(score: float, alone: int = 2) -> dict[str, float]:
    names = ("precision_at_1", "recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8")
    return {
        **dict.fromkeys(names, score + 0.3),
        "r_precision": score + 0.1,
        "mean_average_precision_at_r": score,
        "queries": 120,
        "queries_without_match": alone,
    }


def make_run(
    folder: Path, pool: str = "gsp", seed: int = 0, score: float = 0.25, **facts: Any
) -> Path:
    """A finished run with everything that a run has."""
    gsp = {"prototypes": 8, "mu": 0.3, "eps": 5.0} if pool == "gsp" else {}
    config = {
        "data": "/photos/birds & more",
        "out": str(folder),
        "backbone": "small_cnn",
        "pool": pool,
        "gsp": {"prototypes": None, "mu": None, "eps": None, **gsp},
        "loss": "c2",
        "zero_shot": {"weight": 0.1 if pool == "gsp" else 0.0},
        "stop": {"monitor": "mean_average_precision_at_r"},
        "seed": seed,
    }
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    known = {
        "started": "2025-01-01T00:00:00+00:00",
        "finished": "2025-01-01T00:02:00+00:00",
        "command": ["sumpool", "train", "--data", "/photos/birds & more"],
        "versions": {"torch": "2.15.0"},
        "machine": {"cores": 2, "gpus": []},
        "seed": seed,
        "device": "cpu",
        "steps": 40,
        "best_step": 20,
        "stopped": "patience",
        "classes": {"train": 6, "validation": 2},
        "images": {"train": 1200, "validation": 40},
        **facts,
    }
    (folder / "run.json").write_text(json.dumps(known))
    log = ["step,seconds,loss,base_loss,zero_shot_loss,learning_rate,images_per_second"]
    log += [f"{s},{s},{1 / s},{1 / s},,{1e-3},{100 + s}" for s in range(10, 41, 10)]
    (folder / "log.csv").write_bytes("".join(line + "\r\n" for line in log).encode())
    columns = [*metrics(0), "is_best"]
    lines = ["step,seconds," + ",".join(columns)]
    for step, value in ((10, 0.1), (20, 0.3), (30, 0.2), (40, 0.2)):
        own = {**metrics(value, 0), "is_best": int(step == 20)}
        lines.append(f"{step},{step}," + ",".join(str(own[name]) for name in columns))
    (folder / "validation.csv").write_bytes("".join(line + "\r\n" for line in lines).encode())
    for name, value, alone in (("validation", 0.3, 0), ("test", score, 2)):
        part = folder / "evaluation" / name
        part.mkdir(parents=True)
        (part / "metrics.json").write_text(json.dumps(metrics(value, alone)))
    write_gallery(make_gallery(pool, seed=seed), folder / "exhibits")
    return folder
