"""Scores: complete groups alone, each as its protocol sums it up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumpool.bench.cells import BenchCell
from sumpool.bench.grid import Grid, expand
from sumpool.bench.grid_file import add_to_grid
from sumpool.bench.rows import BenchRow
from sumpool.bench.scoring import score_store
from sumpool.bench.sources import DataSource
from sumpool.bench.store import BenchStore
from sumpool.evaluation import retrieval_metrics
from sumpool.report.scores import SCORES, read_scores
from sumpool.training.config import flat

GLYPHS = DataSource("glyphs", "glyphs", None)
LABELS = np.repeat(np.arange(5), 4)


def cells_of(protocol: str = "fair", **options: object) -> list[BenchCell]:
    return expand(Grid(protocol, [GLYPHS], backbones=["small_cnn"], **options))


def finish(store: BenchStore, cells: Iterable[BenchCell], sharpness: float = 1.0) -> None:
    """Rows and evaluations of cells, with embeddings that no network made."""
    for cell in cells:
        random = np.random.default_rng(int(cell.id, 16))
        vectors = random.normal(size=(len(LABELS), 8)).astype(np.float32)
        vectors[np.arange(len(LABELS)), LABELS] += sharpness
        found = retrieval_metrics(torch.from_numpy(vectors), torch.from_numpy(LABELS))
        run = store.cell_folder(cell.id) / "run"
        for part in ("validation", "test"):
            folder = run / "evaluation" / part
            folder.mkdir(parents=True)
            np.save(folder / "embeddings.npy", vectors)
            np.save(folder / "labels.npy", LABELS)
            names = [f"glyphs/{number}" for number in range(len(LABELS))]
            (folder / "items.json").write_text(json.dumps({"names": names, "class_names": []}))
            (folder / "metrics.json").write_text(json.dumps(found))
        store.add(
            BenchRow(
                id=cell.id,
                protocol=cell.protocol,
                data_set=cell.data_set,
                backbone=cell.backbone,
                loss=cell.loss,
                method=cell.method,
                fold=cell.member.fold,
                seed=cell.member.seed,
                config=json.dumps(flat(cell.config)),
                versions="{}",
                device="cpu",
                started="2026-01-01T00:00:00+00:00",
                duration_s=1.0,
                attempts=1,
                steps=4,
                best_step=2,
                stopped="patience",
                metrics={
                    f"{part}.{name}": value
                    for part in ("validation", "test")
                    for name, value in found.items()
                },
                folder=run.relative_to(store.folder).as_posix(),
            )
        )


@pytest.fixture
def store(tmp_path: Path) -> BenchStore:
    return BenchStore(tmp_path)


def test_a_complete_group_has_scores_of_single_and_of_joined_models(store: BenchStore) -> None:
    cells = cells_of(poolings=["gap"])
    add_to_grid(store, cells)
    finish(store, cells)
    scored = score_store(store)
    assert scored.troubles == []
    assert {(it.dimension, it.count) for it in scored.scores} == {(8, 81), (32, 81)}
    (mean,) = (it for it in scored.scores if (it.dimension, it.metric) == (8, "precision_at_1"))
    values = [row.metrics["test.precision_at_1"] for row in store.rows()]
    assert mean.mean == pytest.approx(np.mean(values))
    assert mean.note == ""
    assert (mean.protocol, mean.data_set, mean.backbone) == ("fair", "glyphs", "small_cnn")
    assert read_scores(store.folder / SCORES)[0] == scored.scores
    assert score_store(BenchStore(store.folder)).scores == scored.scores  # from what was kept


def test_a_group_that_lacks_a_training_has_no_score_and_names_it(store: BenchStore) -> None:
    cells = cells_of(poolings=["gap"])
    add_to_grid(store, cells)
    finish(store, cells[:-2])
    scored = score_store(store)
    assert scored.scores == []
    (group,) = scored.incomplete
    assert (group.method, group.done, group.wanted) == ("gap", 10, 12)
    assert scored.troubles == [
        "fair glyphs small_cnn c2 gap: no score without fold 4, seed 1; fold 4, seed 2"
    ]
    finish(store, cells[-2:])
    assert score_store(BenchStore(store.folder)).incomplete == []


def test_embeddings_that_are_gone_are_named(store: BenchStore) -> None:
    cells = cells_of(poolings=["gap"], seeds=1)
    finish(store, cells)
    gone = store.cell_folder(cells[2].id) / "run/evaluation/test/embeddings.npy"
    gone.unlink()
    scored = score_store(store)
    assert scored.scores == []
    assert str(gone) in scored.troubles[0]


def test_gains_are_over_methods_that_lack_one_thing(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gap"]), sharpness=0.5)
    finish(store, cells_of(poolings=["gsp"], zero_shot=[None, False]), sharpness=2.0)
    scored = score_store(store)
    pairs = {(it.method, it.against) for it in scored.gains}
    assert pairs == {("gsp+zs", "gap"), ("gsp+zs", "gsp"), ("gsp", "gap")}
    over_gap = [it for it in scored.gains if (it.method, it.against) == ("gsp+zs", "gap")]
    assert {it.dimension for it in over_gap} == {8, 32}
    assert all(it.low <= it.mean <= it.high for it in over_gap)
    assert all(it.mean > 0 for it in over_gap if it.metric == "mean_average_precision_at_r")


def test_what_was_set_is_said_and_keeps_groups_apart(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gsp"], seeds=1))
    finish(store, cells_of(poolings=["gsp"], seeds=1, options={"gsp.mu": 0.5}))
    scored = score_store(store)
    assert {(it.method, it.note) for it in scored.scores} == {
        ("gsp+zs", "1 and not 3 seeds"),
        ("gsp+zs", "set gsp.mu=0.5; 1 and not 3 seeds"),
    }


def test_conventional_scores_say_what_they_were_selected_on(store: BenchStore) -> None:
    cells = cells_of("conventional", poolings=["gap", "gsp"])
    assert {cell.method for cell in cells} == {"gap+gmp", "gmp+gsp+zs"}
    finish(store, cells)
    scored = score_store(store)
    assert all("selected on the test set" in it.note for it in scored.scores)
    assert {(it.method, it.against) for it in scored.gains} == {("gmp+gsp+zs", "gap+gmp")}


def test_tuning_scores_are_of_validation_classes(store: BenchStore) -> None:
    finish(store, cells_of("tuning", poolings=["gap"]))
    scored = score_store(store)
    assert {(it.count, it.note) for it in scored.scores} == {(3, "on validation classes")}
