"""Scores: complete groups alone, each as its protocol sums it up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.bench.cells import BenchCell
from sumpool.bench.datasets import DataSource
from sumpool.bench.grid import Grid, expand
from sumpool.bench.planned_cells import add_to_grid
from sumpool.bench.report.scores import SCORES, read_scores
from sumpool.bench.scoring import Scored, score_store
from sumpool.bench.store.rows import BenchRow
from sumpool.bench.store.store import BenchStore
from sumpool.evaluation import retrieval_metrics
from sumpool.training.config import flat

GLYPHS = DataSource("glyphs", "glyphs", None)
LABELS = np.repeat(np.arange(5), 4)
LISTS = ("labels", "names")
NAMES = [f"glyphs/{number}" for number in range(len(LABELS))]


def cells_of(protocol: str = "fair", **options: object) -> list[BenchCell]:
    return expand(Grid(protocol, [GLYPHS], backbones=["small_cnn"], **options))


def finish(
    store: BenchStore,
    cells: Iterable[BenchCell],
    sharpness: float = 1.0,
    names: Sequence[str] = NAMES,
    gallery: Sequence[str] | None = None,
) -> None:
    """Rows and evaluations of cells, with embeddings that no network made.

    ``names`` are those of the images, ``gallery`` those of a gallery if there is one.
    """
    for cell in cells:
        random = np.random.default_rng(int(cell.id, 16))
        vectors = random.normal(size=(len(LABELS), 8)).astype(np.float32)
        vectors[np.arange(len(LABELS)), LABELS] += sharpness
        sets = {"": (vectors, names)}
        if gallery is not None:
            sets["gallery-"] = (vectors[::-1].copy(), gallery)
        parts = [torch.from_numpy(it) for own, _ in sets.values() for it in (own, LABELS)]
        found = retrieval_metrics(*parts)
        run = store.cell_folder(cell.id) / "run"
        for part in ("validation", "test"):
            folder = run / "evaluation" / part
            folder.mkdir(parents=True)
            for prefix, (own, called) in sets.items():
                np.save(folder / f"{prefix}embeddings.npy", own)
                np.save(folder / f"{prefix}labels.npy", LABELS)
                items = {"names": list(called), "class_names": []}
                (folder / f"{prefix}items.json").write_text(json.dumps(items))
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


def lose_evaluations(store: BenchStore) -> None:
    """As in a copy without large files."""
    for folder in store.folder.glob("cells/*/run/evaluation"):
        shutil.rmtree(folder)


def make_older(store: BenchStore) -> None:
    """What is kept of groups, as it was before it said which images it is about."""
    for path in (store.folder / "combined").iterdir():
        with np.load(path) as kept:
            arrays = {name: kept[name] for name in kept if name.split(".")[-1] not in LISTS}
        np.savez(path, **arrays)


def spoil(store: BenchStore) -> None:
    for path in (store.folder / "combined").iterdir():
        path.write_bytes(path.read_bytes()[:100])


def scored_again(store: BenchStore) -> Scored:
    """What another process finds, and writes."""
    found = score_store(BenchStore(store.folder))
    assert read_scores(store.folder / SCORES) == (found.scores, found.gains, found.incomplete)
    return found


@pytest.fixture
def store(tmp_path: Path) -> BenchStore:
    return BenchStore(tmp_path)


def test_a_complete_group_has_scores_of_single_and_of_joined_models(store: BenchStore) -> None:
    cells = cells_of(poolings=["gap"])
    add_to_grid(store, cells)
    finish(store, cells)
    scored = score_store(store)
    assert scored.warnings == []
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
    assert scored.warnings == [
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
    assert str(gone) in scored.warnings[0]


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


def test_a_former_default_is_said_where_it_acts_and_gains_are_over_what_lacks_the_part(
    store: BenchStore,
) -> None:
    plain = cells_of(poolings=["gap"], seeds=1)
    today = cells_of(poolings=["gap"], seeds=1, ccp=[True])
    former = cells_of(poolings=["gap"], seeds=1, ccp=[True], options={"ccp.solution": "best"})
    finish(store, [*plain, *today, *former])
    scored = score_store(store)
    notes = {it.note for it in scored.scores if it.method == "ccp+gap"}
    assert notes == {"1 and not 3 seeds", "set ccp.solution=best; 1 and not 3 seeds"}
    gains = [it for it in scored.gains if (it.metric, it.dimension) == ("precision_at_1", 8)]
    assert {(it.against, it.note) for it in gains} == {
        ("gap", ""),
        ("gap", "set ccp.solution=best"),
    }
    assert len(gains) == 2
    other = cells_of(poolings=["gap"], seeds=1, ccp=[True], options={"ccp.candidates": 16})
    finish(store, other)
    assert "set ccp.candidates=16" in " ".join(it.note for it in score_store(store).scores)


def test_gains_are_over_runs_with_the_same_options_and_then_over_those_that_do_not_use_them(
    store: BenchStore,
) -> None:
    finish(store, cells_of(poolings=["gsp"], seeds=1, options={"zero_shot.scale": 5.0}))
    finish(store, cells_of(poolings=["gap"], seeds=1))

    def gains() -> list[tuple[str, float]]:
        found = score_store(store).gains
        return [
            (it.note, it.mean)
            for it in found
            if (it.against, it.metric, it.dimension) == ("gap", "precision_at_1", 8)
        ]

    over_plain = gains()
    assert [note for note, _ in over_plain] == ["set zero_shot.scale=5"]
    finish(store, cells_of(poolings=["gap"], seeds=1, options={"zero_shot.scale": 5.0}))
    over_same = gains()
    assert [note for note, _ in over_same] == ["set zero_shot.scale=5"]
    assert over_same != over_plain


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


@pytest.mark.parametrize("protocol", ["fair", "conventional", "tuning"])
def test_scores_and_gains_need_no_evaluations_once_they_are_there(
    store: BenchStore, protocol: str
) -> None:
    finish(store, cells_of(protocol, poolings=["gap", "gsp"]))
    scored = score_store(store)
    assert scored.scores
    assert scored.gains
    lose_evaluations(store)
    assert scored_again(store) == scored
    assert scored_again(store) == scored


def test_queries_and_gallery_are_known_without_evaluations(store: BenchStore) -> None:
    # Letters of several alphabets and planes, and a byte of a file's name that is no UTF-8.
    names = [f"ä{number}/鳥 🐦\udcff{'ł' * number}.jpg" for number in range(len(LABELS))]
    gallery = [f"Ω/{number}.jpg" for number in range(len(LABELS))]
    others = [*gallery[:-1], "Ω/öther.jpg"]
    images: dict[str, Any] = {"names": names, "gallery": gallery}
    finish(store, cells_of(poolings=["gap"]), **images)
    finish(store, cells_of(poolings=["gsp"]), **images)
    finish(store, cells_of(poolings=["gsp"], zero_shot=[False]), names=names, gallery=others)
    finish(store, cells_of(poolings=["gmp"]), names=names)
    finish(store, cells_of("tuning", poolings=["gap"]), **images)
    finish(store, cells_of("tuning", poolings=["gmp"]), **{**images, "names": names[::-1]})
    scored = score_store(store)
    assert {(it.protocol, it.method, it.against) for it in scored.gains} == {
        ("fair", "gsp+zs", "gap")
    }
    said = "\n".join(scored.warnings)
    assert "other gallery than" in said
    assert "image 19 is öther.jpg and not 19.jpg" in said
    assert "only one of them has a gallery of its own" in said
    assert f"image 0 is {names[0]} and not {names[-1]}" in said
    lose_evaluations(store)
    assert scored_again(store) == scored  # refused in the same words, too


def test_runs_that_are_added_lose_nothing_of_other_groups(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gap", "gsp"], seeds=2))
    finish(store, cells_of(poolings=["gsp"], zero_shot=[False], seeds=2))
    scored = score_store(store)
    lose_evaluations(store)
    of_others = [it for it in scored.scores if it.method != "gap"]
    between_others = [it for it in scored.gains if it.against != "gap"]
    assert between_others

    added = [cell for cell in cells_of(poolings=["gap"]) if cell.member.seed == 2]
    finish(store, added[:1])
    found = scored_again(store)
    (trouble,) = found.warnings
    assert trouble == (
        "fair glyphs small_cnn c2 gap: no score without "
        "fold 2, seed 2; fold 3, seed 2; fold 4, seed 2"
    )
    assert (found.scores, found.gains) == (of_others, between_others)

    # Now it is complete, but the embeddings of the first runs are not there to be joined.
    finish(store, added[1:])
    found = scored_again(store)
    (trouble,) = found.warnings
    assert trouble.startswith("fair glyphs small_cnn c2 gap: no score: ")
    assert "run/evaluation/test/labels.npy cannot be read" in trouble
    assert (found.scores, found.gains) == (of_others, between_others)


def test_what_older_versions_kept_learns_its_images_without_embeddings(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gap", "gsp"], seeds=2))
    scored = score_store(store)
    make_older(store)
    for path in store.folder.glob("cells/*/run/evaluation/*/embeddings.npy"):
        path.unlink()
    assert scored_again(store) == scored
    lose_evaluations(store)
    assert scored_again(store) == scored


def test_what_was_kept_and_is_damaged_is_computed_anew(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gap", "gsp"], seeds=2))
    scored = score_store(store)
    spoil(store)
    assert scored_again(store) == scored
    lose_evaluations(store)
    assert scored_again(store) == scored


@pytest.mark.parametrize("harm", [pytest.param(make_older, marks=pytest.mark.process), spoil])
def test_scores_that_cannot_be_computed_any_more_stay_and_are_named(
    store: BenchStore, harm: Callable[[BenchStore], None]
) -> None:
    finish(store, cells_of(poolings=["gap", "gsp"], seeds=2))
    finish(store, cells_of(poolings=["gsp"], seeds=2, options={"gsp.mu": 0.5}))
    finish(store, cells_of("conventional", poolings=["gap", "gsp"], seeds=2))
    scored = score_store(store)
    harm(store)
    lose_evaluations(store)
    found = scored_again(store)
    assert (found.scores, found.gains) == (scored.scores, scored.gains)
    assert len(found.warnings) == 5
    for trouble in found.warnings:
        assert "its scores are those of before: " in trouble
        assert "cannot be read" in trouble
    assert scored_again(store) == found

    # A copy of the report without the stored results keeps its scores too.
    shutil.rmtree(store.folder / "combined")
    found = scored_again(store)
    assert (found.scores, found.gains) == (scored.scores, scored.gains)

    # Of other runs than those that were scored nothing stays, nor of gains over them.
    finish(store, [it for it in cells_of(poolings=["gap"]) if it.member.seed == 2])
    found = scored_again(store)
    changed = ("fair", "gap")
    assert found.scores == [it for it in scored.scores if (it.protocol, it.method) != changed]
    assert found.gains == [it for it in scored.gains if (it.protocol, it.against) != changed]
    # Without what was scored there is nothing to go by.
    (store.folder / SCORES).unlink()
    found = scored_again(store)
    assert (found.scores, found.gains) == ([], [])
    assert all("no score: " in trouble for trouble in found.warnings)


def test_gains_of_before_stay_where_one_side_can_still_be_computed(store: BenchStore) -> None:
    finish(store, cells_of(poolings=["gap"], seeds=2))
    score_store(store)
    (first,) = (store.folder / "combined").iterdir()
    finish(store, cells_of(poolings=["gsp"], seeds=2))
    scored = score_store(store)
    lose_evaluations(store)
    first.write_bytes(b"")
    found = scored_again(store)
    assert (found.scores, found.gains) == (scored.scores, scored.gains)
    assert len(found.warnings) == 1
