"""Scores of a protocol from stored embeddings, and what is no result of it."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from protocols.fake_members import clustered, write_member, write_members
from sumpool.evaluation import retrieval_metrics
from sumpool.protocols import (
    PROTOCOLS,
    Member,
    MemberResult,
    MissingMemberError,
    ProtocolError,
    aggregate,
    combine,
    read_member,
)

FAIR = PROTOCOLS["fair"]
ALONE = [torch.arange(60) % 9]
WITH_GALLERY = [torch.arange(30) % 9, torch.arange(50) % 8]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[MemberResult]:
    """All runs of the fair protocol; their folders are only read."""
    return write_members(tmp_path_factory.mktemp("fair"), FAIR, clustered(ALONE), ALONE)


def naive_fair(results: Sequence[MemberResult]) -> dict[tuple[int, str], list[float]]:
    """Every combination by itself: means of metrics, and metrics of concatenations."""
    values: dict[tuple[int, str], list[float]] = {}
    by_member = {it.member: it for it in results}
    seeds = sorted({it.member.seed for it in results})
    for chosen in product(seeds, repeat=4):
        runs = [by_member[Member(fold, seed)] for fold, seed in enumerate(chosen, 1)]
        metrics = [
            json.loads((it.folder / "evaluation/test/metrics.json").read_text()) for it in runs
        ]
        sets: list[Tensor] = []
        for prefix in ("", "gallery-"):
            parts = []
            for it in runs:
                path = it.folder / f"evaluation/test/{prefix}embeddings.npy"
                if path.exists():
                    x = torch.from_numpy(np.load(path)).double()
                    parts.append((x / x.norm(dim=1, keepdim=True)).float())
            if parts:
                labels = np.load(runs[0].folder / f"evaluation/test/{prefix}labels.npy")
                sets += [torch.cat(parts, 1), torch.from_numpy(labels)]
        wide = retrieval_metrics(*sets)
        dimension = sets[0].shape[1]
        for name in metrics[0]:
            if not name.startswith("queries"):
                mean = statistics.fmean(it[name] for it in metrics)
                values.setdefault((dimension // 4, name), []).append(mean)
                values.setdefault((dimension, name), []).append(wide[name])
    return values


@pytest.mark.parametrize("labels", [ALONE, WITH_GALLERY], ids=["one set", "queries and gallery"])
def test_scores_are_those_of_all_81_combinations(tmp_path: Path, labels: list[Tensor]) -> None:
    draw = clustered(labels)
    # Not all models give vectors of length 1.
    results = write_members(tmp_path, FAIR, lambda m, it: draw(m, it) * (1 + m.seed), labels)
    scores = aggregate(FAIR, results[::-1])
    truth = naive_fair(results)
    assert [(it.dimension, it.metric) for it in scores[:2]] == [
        (6, "precision_at_1"),
        (6, "recall_at_1"),
    ]
    assert {(it.dimension, it.metric) for it in scores} == set(truth)
    for it in scores:
        values = truth[it.dimension, it.metric]
        assert it.count == len(values) == 81
        assert it.mean == pytest.approx(statistics.fmean(values), abs=1e-12)
        assert it.std == pytest.approx(statistics.stdev(values), abs=1e-12)
        assert it.note == ""
    # The models of this world differ, and are better together.
    found = {(it.dimension, it.metric): it for it in scores}
    one, wide = (found[d, "mean_average_precision_at_r"] for d in (6, 24))
    assert wide.mean > one.mean + 0.05
    assert one.std > 0


def test_lengths_of_vectors_and_places_of_the_data_do_not_count(
    members: list[MemberResult], tmp_path: Path
) -> None:
    longer = 64 * clustered(ALONE)(Member(4, 2), 0)
    folder = write_member(tmp_path, "test", [longer], ALONE, root="scratch/cub/images")
    moved = [*members[:-1], read_member(FAIR, Member(4, 2), folder)]
    assert aggregate(FAIR, moved) == aggregate(FAIR, members)


def test_fewer_seeds_are_fewer_combinations(members: list[MemberResult]) -> None:
    two, one = ([it for it in members if it.member.seed < seeds] for seeds in (2, 1))
    assert {it.count for it in aggregate(FAIR, two, seeds=2)} == {16}
    assert {(it.count, it.std) for it in aggregate(FAIR, one, seeds=1)} == {(1, 0.0)}


def test_every_missing_member_is_named_and_nothing_is_averaged(members: list[MemberResult]) -> None:
    without = [it for it in members if it.member.fold != 3 and it.member != Member(1, 2)]
    with pytest.raises(MissingMemberError) as raised:
        aggregate(FAIR, without)
    named = "fold 1, seed 2; fold 3, seed 0; fold 3, seed 1; fold 3, seed 2"
    assert str(raised.value) == f"4 of the 12 runs of the fair protocol are missing: {named}"


def test_members_that_do_not_belong_are_refused(members: list[MemberResult]) -> None:
    with pytest.raises(ProtocolError, match="fold 1, seed 0 is there twice"):
        aggregate(FAIR, [*members, members[0]])
    with pytest.raises(ProtocolError, match="fold 1, seed 2 is not part of the fair protocol"):
        aggregate(FAIR, members, seeds=2)


def test_other_images_are_refused_and_their_folder_named(
    members: list[MemberResult], tmp_path: Path
) -> None:
    draw = clustered(ALONE)(Member(4, 2), 0)

    def replaced(name: str, vectors: list[Tensor], labels: list[Tensor]) -> str:
        folder = write_member(tmp_path / name, "test", vectors, labels)
        other = read_member(FAIR, members[-1].member, folder)
        with pytest.raises(ProtocolError) as raised:
            combine(FAIR, [*members[:-1], other])
        assert str(folder) in str(raised.value)
        assert "fold 4, seed 2" in str(raised.value)
        return str(raised.value)

    assert "50 and not 60" in replaced("fewer", [draw[:50]], [ALONE[0][:50]])
    shuffled = ALONE[0].clone()
    shuffled[[3, 4]] = shuffled[[4, 3]]
    assert "image 3 is of class 4 and not 3" in replaced("labels", [draw], [shuffled])
    assert "only one of them has a gallery" in replaced("gallery", [draw, draw.clone()], ALONE * 2)
    wide = torch.cat([draw, draw], 1)
    assert "embeddings of 12 dimensions" in replaced("wide", [wide], ALONE)
    items = tmp_path / "labels/evaluation/test/items.json"
    stored = json.loads(items.read_text())
    folder = write_member(tmp_path / "names", "test", [draw], ALONE)
    stored["names"] = [*stored["names"][:7], "/data/birds/7/other.jpg", *stored["names"][8:]]
    (folder / "evaluation/test/items.json").write_text(json.dumps(stored))
    with pytest.raises(ProtocolError, match=r"names .* image 3 is 4/3.jpg and not 3/3.jpg"):
        combine(FAIR, [*members[:-1], read_member(FAIR, Member(4, 2), folder)])


def test_damaged_and_missing_files_are_named(members: list[MemberResult], tmp_path: Path) -> None:
    shutil.copytree(members[5].folder, tmp_path / "run")
    damaged = replace(members[5], folder=tmp_path / "run")
    results = [*members[:5], damaged, *members[6:]]
    part = damaged.folder / "evaluation/test"
    (part / "embeddings.npy").write_bytes(b"x")
    with pytest.raises(ProtocolError, match=r"embeddings\.npy cannot be read"):
        aggregate(FAIR, results)
    np.save(part / "embeddings.npy", np.zeros((59, 6), np.float32))
    with pytest.raises(ProtocolError, match=r"is damaged: 60 labels, 60 names"):
        aggregate(FAIR, results)
    other = replace(damaged, metrics={"queries": 60})
    with pytest.raises(ProtocolError, match=r"has the metrics none"):
        aggregate(FAIR, [*results[:5], other, *results[6:]])
    shutil.rmtree(part)
    with pytest.raises(ProtocolError, match=r"fold 2, seed 2: .*metrics\.json cannot be read"):
        read_member(FAIR, results[5].member, results[5].folder)


def test_a_gallery_without_its_embeddings_does_not_pass_for_none(tmp_path: Path) -> None:
    results = write_members(tmp_path, FAIR, clustered(WITH_GALLERY), WITH_GALLERY)
    for it in results:
        (it.folder / "evaluation/test/gallery-embeddings.npy").unlink()
    with pytest.raises(ProtocolError, match=r"gallery-embeddings\.npy cannot be read"):
        aggregate(FAIR, results)


def test_the_conventional_score_is_of_one_model_and_says_how_it_was_chosen(tmp_path: Path) -> None:
    protocol = PROTOCOLS["conventional"]
    draw = clustered(ALONE, noise=1.5)
    results = write_members(tmp_path, protocol, draw, ALONE)
    best = max(results, key=lambda it: it.metrics["precision_at_1"])
    assert len({it.metrics["precision_at_1"] for it in results}) == 3
    for it in aggregate(protocol, results):
        assert it.mean == best.metrics[it.metric]
        assert (it.dimension, it.std, it.count) == (6, 0.0, 1)
        assert it.note == "selected on the test set, best of 3"


def test_the_tuning_score_is_the_mean_over_seeds_on_validation_classes(tmp_path: Path) -> None:
    protocol = PROTOCOLS["tuning"]
    results = write_members(tmp_path, protocol, clustered(ALONE), ALONE)
    scores = aggregate(protocol, results)
    for it in scores:
        values = [own.metrics[it.metric] for own in results]
        assert it.mean == pytest.approx(statistics.fmean(values))
        assert it.std == pytest.approx(statistics.stdev(values))
        assert (it.count, it.note) == (3, "on validation classes")
    assert not (results[0].folder / "evaluation/test").exists()


def test_folds_are_validated_on_images_of_their_own(tmp_path: Path) -> None:
    protocol = PROTOCOLS["steady-tuning"]
    results = []
    for member in protocol.members():
        labels = [ALONE[0] + 10 * (member.fold or 0)]
        vectors = [clustered(labels)(member, 0)]
        folder = write_member(tmp_path / str(member), "validation", vectors, labels)
        results.append(read_member(protocol, member, folder))
    for it in aggregate(protocol, results):
        values = [own.metrics[it.metric] for own in results]
        assert it.mean == pytest.approx(statistics.fmean(values))
        assert (it.count, it.note) == (1, "on validation classes")
