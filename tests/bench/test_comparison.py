"""Means and paired gains of finished runs, from their rows alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sumpool.bench.cells import BenchCell
from sumpool.bench.datasets import DataSource
from sumpool.bench.grid import Grid, expand
from sumpool.bench.report.comparison import Baseline, comparison_tables, matching_rows
from sumpool.bench.store.packed import PACKED, collect_rows, write_packed
from sumpool.bench.store.rows import BenchRow
from sumpool.bench.store.store import BenchStore
from sumpool.report.tables import Table
from sumpool.system.files import StoreError
from sumpool.training.config import flat

GLYPHS = DataSource("glyphs", "glyphs", None)
GAP = Baseline("gap")


def rows_of(protocol: str = "fair", **options: Any) -> list[BenchRow]:
    """A row per cell of a grid, with scores from a generator that starts at the cell's identity."""
    return [
        _row(cell) for cell in expand(Grid(protocol, [GLYPHS], backbones=["small_cnn"], **options))
    ]


def _row(cell: BenchCell) -> BenchRow:
    random = np.random.default_rng(int(cell.id, 16))
    names = ("precision_at_1", "mean_average_precision_at_r")
    metrics = {
        f"{part}.{name}": random.uniform() for part in ("validation", "test") for name in names
    }
    return BenchRow(
        *(
            cell.id,
            *cell.key,
            cell.member.fold,
            cell.member.seed,
            json.dumps(flat(cell.config)),
            "{}",
        ),
        *("cpu", "2026-01-01T00:00:00+00:00", 1.0, 1, 4, 2, "patience", metrics, "run"),
    )


def column(table: Table, name: str, **where: str) -> list[str]:
    """The cells of a column in the rows with these values."""
    kept = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return [row[name] for row in kept if all(row[key] == value for key, value in where.items())]


def test_gains_are_the_mean_difference_of_runs_with_one_fold_and_seed() -> None:
    rows = rows_of(poolings=["gap", "gmp"])
    left_out = {("gmp", 2, 1), ("gap", 3, 0)}
    rows = [row for row in rows if (row.method, row.fold, row.seed) not in left_out]
    (table,) = comparison_tables(rows, [GAP])
    score = {
        (row.method, row.fold, row.seed): 100 * row.metrics["test.precision_at_1"] for row in rows
    }
    both = [(fold, seed) for fold, seed in product((1, 2, 3, 4), (0, 1, 2))]
    found = np.array(
        [
            score["gmp", *it] - score["gap", *it]
            for it in both
            if ("gmp", *it) in score and ("gap", *it) in score
        ]
    )
    reach = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found))
    gain = f"{'+' if found.mean() > 0 else '−'}{abs(found.mean()):.2f} ± {reach:.2f}"
    ahead = f"({(found > 0).sum()}/10)"
    assert column(table, "P@1 over GAP") == ["", f"{gain} {ahead}"]
    assert column(table, "runs") == ["11", "11"]
    own = [value for (method, *_), value in score.items() if method == "gmp"]
    assert column(table, "P@1", method="GMP") == [f"{np.mean(own):.2f}"]


def test_runs_are_compared_on_the_same_crop() -> None:
    rows = [
        *rows_of(poolings=["gap", "gmp"], options={"crop": 64}),
        *rows_of(poolings=["gap", "gmp"], options={"crop": 96}),
        *rows_of(poolings=["gmp"], options={"crop": 96, "embedding_size": 64}),
    ]
    (table,) = comparison_tables(rows, [GAP])
    assert len(table.rows) == 5
    for crop in (64, 96):
        alone = [row for row in rows if json.loads(row.config)["crop"] == crop]
        (narrow,) = comparison_tables(alone, [GAP])
        (wide,) = column(table, "P@1 over GAP", method="GMP", set=f"crop={crop}")
        assert wide in column(narrow, "P@1 over GAP", method="GMP") != [""]
    assert column(table, "P@1 over GAP", set="crop=96, embedding_size=64") == [""]


def test_the_other_method_is_taken_at_its_best_on_validation_classes() -> None:
    good, fair = (rows_of(poolings=["gap"], options={"optimizer.lr": lr}) for lr in (1e-3, 1e-4))
    good = [_scored(row, validation=0.9, test=0.25) for row in good]
    fair = [_scored(row, validation=0.8, test=0.5) for row in fair]
    few = [_scored(row, validation=1.0, test=0.0) for row in rows_of(poolings=["gap"], seeds=1)]
    ours = [_scored(row, validation=0.5, test=0.5) for row in rows_of(poolings=["gmp"])]
    (table,) = comparison_tables([*fair, *good, *few, *ours], [GAP])
    assert column(table, "P@1 over GAP", method="GMP") == ["+25.00 ± 0.00 (12/12)"]


def test_a_setting_is_compared_with_another_one_of_its_method() -> None:
    rows = [row for mu in (0.25, 1.0) for row in rows_of(poolings=["gsp"], options={"gsp.mu": mu})]
    (table,) = comparison_tables(rows, [Baseline("gsp+zs", {"gsp.mu": 1.0})])
    name = "P@1 over GSP + ZS"
    assert [it.endswith("/12)") for it in column(table, name, set="gsp.mu=0.25")] == [True]
    assert column(table, name, set="gsp.mu=1") == [""]
    (table,) = comparison_tables(rows, [Baseline("gsp+zs")])
    assert column(table, name) == ["", ""]


def _scored(row: BenchRow, **scores: float) -> BenchRow:
    return replace(row, metrics={name: scores[name.split(".")[0]] for name in row.metrics})


def test_the_same_weights_may_lie_in_different_folders() -> None:
    def rows(pooling: str, weights: str) -> list[BenchRow]:
        return [
            replace(row, config=json.dumps({**json.loads(row.config), "weights": weights}))
            for row in rows_of(poolings=[pooling])
        ]

    ours, theirs = rows("gmp", "/home/w.pth"), rows("gap", "/scratch/w.pth")
    (table,) = comparison_tables([*ours, *theirs], [GAP])
    (gain,) = column(table, "P@1 over GAP", method="GMP")
    assert gain.endswith("/12)")
    (table,) = comparison_tables([*ours, *rows("gap", "/home/v.pth")], [GAP])
    assert column(table, "P@1 over GAP", method="GMP") == [""]
    (table,) = comparison_tables([*ours, *theirs, *rows("gap", "/home/w.pth")], [GAP])
    (both,) = column(table, "P@1 over GAP", method="GMP")
    assert both == gain


def test_losses_are_summed_up_where_a_method_has_one_setting_for_each() -> None:
    rows = rows_of(losses=["c2", "ms"], poolings=["gap", "gmp"], seeds=1)
    (table,) = comparison_tables(rows, [GAP])
    assert [it.endswith("/8)") for it in column(table, "P@1 over GAP", loss="all")] == [True]
    more = rows_of(losses=["c2"], poolings=["gmp"], seeds=1, options={"crop": 64})
    (table,) = comparison_tables([*rows, *more], [GAP])
    assert column(table, "P@1 over GAP", loss="all") == []


def test_a_memory_is_compared_with_a_memory() -> None:
    rows = rows_of(losses=["c1"], poolings=["gap", "gmp"], xbm=[True, False], seeds=1)
    (table,) = comparison_tables(rows, [GAP])
    (alone,) = comparison_tables([row for row in rows if row.method.startswith("xbm")], [GAP])
    name = "P@1 over GAP"
    assert (
        column(table, name, method="XBM + GMP") == column(alone, name, method="XBM + GMP") != [""]
    )
    assert [it.endswith("/8)") for it in column(table, name, loss="all")] == [True]


def test_scores_are_of_the_classes_that_the_protocol_evaluates() -> None:
    for protocol, part in (("fair", "test"), ("tuning", "validation")):
        rows = rows_of(protocol, poolings=["gap"])
        (table,) = comparison_tables(rows)
        assert f"{part} classes" in table.caption
        values = [100 * row.metrics[f"{part}.precision_at_1"] for row in rows]
        # Over seeds there is a spread, over folds it would not say much.
        spread = f" ± {np.std(values, ddof=1):.2f}" if protocol == "tuning" else ""
        assert column(table, "P@1") == [f"{np.mean(values):.2f}{spread}"]
    (table,) = comparison_tables(rows_of(poolings=["gap"]), part="validation")
    assert "validation classes" in table.caption


def test_rows_are_chosen_by_what_they_were_trained_with() -> None:
    rows = rows_of(poolings=["gap", "gsp"], ccp=[False, True], seeds=2)
    assert matching_rows(rows) == rows
    assert {row.fold for row in matching_rows(rows, folds=[1, 3])} == {1, 3}
    assert {row.seed for row in matching_rows(rows, seeds=1)} == {0}
    assert matching_rows(rows, protocols=["tuning"]) == []
    assert matching_rows(rows, losses=["ms"]) == []
    assert matching_rows(rows, backbones=["small_cnn"]) == rows
    # What a run does not have may be anything.
    best = matching_rows(rows, options={"ccp.solution": "best"})
    assert {row.method for row in best} == {"gap", "gsp+zs"}
    # Whether a run has a component is an option of its own.
    assert {row.method for row in matching_rows(rows, options={"ccp.enabled": True})} == {
        "ccp+gap",
        "ccp+gsp+zs",
    }
    # Average pooling cannot have the zero-shot loss.
    weighted = matching_rows(rows, options={"zero_shot.weight": 9.0})
    assert {row.method for row in weighted} == {"gap", "ccp+gap"}
    former = [replace(row, config=json.dumps(_without(row, "ccp.solution"))) for row in rows]
    assert matching_rows(former, options={"ccp.solution": "best"}) == former


def _without(row: BenchRow, name: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(row.config).items() if key != name}


def test_what_is_not_there_is_refused_by_name() -> None:
    rows = rows_of(poolings=["gap"], seeds=1)
    with pytest.raises(StoreError, match="over must be one of gap, got gmp"):
        comparison_tables(rows, [Baseline("gmp")])
    with pytest.raises(StoreError, match="over: no finished run of gap has crop=64"):
        comparison_tables(rows, [Baseline("gap", {"crop": 64})])
    with pytest.raises(StoreError, match=r"gap has no recall of test classes, only mean_average"):
        comparison_tables(rows, metrics=["recall"])


def test_packed_rows_are_the_rows(tmp_path: Path) -> None:
    rows = rows_of(poolings=["gap", "gmp"], seeds=1)
    store = BenchStore(tmp_path / "bench")
    for row in rows[:5]:
        store.add(row)
    (tmp_path / "results").mkdir()
    write_packed(tmp_path / "results" / PACKED, rows[4:])
    assert collect_rows([tmp_path / "bench"]) == sorted(rows[:5], key=lambda row: row.order)
    everything = [tmp_path / "bench", tmp_path / "results", tmp_path / "results" / PACKED]
    assert collect_rows(everything) == sorted(rows, key=lambda row: row.order)


@pytest.mark.parametrize("content", [b"", b"PAR1 no more", None, "empty"])
def test_places_without_rows_are_refused_by_name(
    content: bytes | str | None, tmp_path: Path
) -> None:
    path = tmp_path / PACKED
    if content == "empty":
        write_packed(path, [])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(StoreError, match=f"^{tmp_path}") as refused:
        collect_rows([tmp_path])
    assert "\n" not in str(refused.value)


def test_a_damaged_number_is_found(tmp_path: Path) -> None:
    (row, *_) = rows_of(poolings=["gap"], seeds=1)
    write_packed(tmp_path / PACKED, [replace(row, metrics={"test.precision_at_1": 7.0})])
    with pytest.raises(StoreError, match="it is damaged: "):
        collect_rows([tmp_path])
