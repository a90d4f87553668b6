"""The page of the study of average pooling, from made-up rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sumpool.studies.averaging import figures as averaging_figure
from sumpool.studies.averaging import section as averaging_section
from sumpool.system.rows import ResultStore, read_rows

PNG = b"\x89PNG\r\n"
METRICS = {
    "map_at_r": 0.7,
    "pooled_map_at_r": 0.72,
    "combined_map_at_r": 0.5,
    "delta": 0.12,
    "distance_mean": 0.06,
    "error_mean": 0.02,
    "error_max": 0.05,
    "squared_error_max": 0.0025,
    "bound_holds": 1.0,
    "overlap_mean": 0.6,
    "overlapping_pairs": 1.0,
    "active_prototypes_mean": 7.5,
    "shared_prototypes": 0.5,
    "main_overlap_mean": 0.4,
    "main_prototypes_mean": 4.0,
    "main_shared_prototypes": 0.25,
    "embedding_overlap_mean": 0.02,
    "embedding_overlapping_pairs": 0.1,
    "inside_others": 0.05,
}


def made_up(classes: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    arrays: dict[str, NDArray[Any]] = {
        "features": rng.uniform(-1, 1, (200, 2)),
        "feature_classes": rng.integers(0, classes, 200),
        "prototypes": rng.uniform(-1, 1, (12, 2)),
        "pooled": rng.uniform(-1, 1, (4 * classes, 2)),
        "combined": rng.uniform(-1, 1, (4 * classes, 2)),
        "labels": np.arange(4 * classes) % classes,
        "shares": rng.dirichlet(np.ones(12), classes),
        "classes": np.arange(classes),
        "class_names": np.array([f"a_class ${it}$" for it in range(classes)]),
        "images": rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8),
        "image_index": np.array([0, 3]),
        "image_features": rng.uniform(-1, 1, (2, 16, 2)),
        "image_histograms": rng.dirichlet(np.full(12, 0.3), 2),
        "image_errors": np.array([0.02, 0.03]),
    }
    for name, count in (
        ("active", classes),
        ("main", classes),
        ("embedding", classes),
        ("image", 2),
    ):
        arrays[f"{name}_corners"] = np.concatenate([triangle] * count)
        arrays[f"{name}_sizes"] = np.full(count, 3)
    return arrays


@pytest.fixture
def studied(tmp_path: Path) -> Path:
    settings = {"data": "CIFAR-10", "prototypes": 12, "images": 64, "main_share": 0.01}
    store = ResultStore(tmp_path, "averaging", settings)
    for seed in range(2):
        # As they come from cells that run in parallel: in any order.
        for pool in ("gsp", "gap"):
            found = {**METRICS, "delta": 0.1 + 0.02 * seed + 0.1 * (pool == "gsp")}
            arrays = made_up(12) if seed == 0 else None
            store.add({"pool": pool, "loss": "c2", "seed": seed}, found, 1.0, arrays)
    return tmp_path


def test_tables_have_errors_with_their_bound_and_hulls(studied: Path) -> None:
    errors, hulls = averaging_section.tables(read_rows(studied))
    lines = {row[0]: dict(zip(errors.header, row, strict=True)) for row in errors.rows}
    assert list(lines) == ["GAP", "GSP"]
    assert lines["GAP"]["δ"] == "0.110 ± 0.014"
    assert lines["GSP"]["δ"] == "0.210 ± 0.014"
    assert lines["GAP"]["MAP@R [%]"] == "72.0 ± 0.0"
    assert lines["GSP"]["MAP@R by PCC [%]"] == "50.0 ± 0.0"
    assert lines["GAP"]["within bound [%]"] == "100.0 ± 0.0"
    assert lines["GAP"]["squared, largest"] == "0.0025 ± 0.0000"
    # Measured on glyphs alone.
    assert "weight on the letter [%]" not in errors.header
    lines = {row[0]: dict(zip(hulls.header, row, strict=True)) for row in hulls.rows}
    assert lines["GSP"]["overlap [%]"] == "60.0 ± 0.0"
    assert lines["GAP"]["embeddings overlap [%]"] == "2.0 ± 0.0"
    assert "12 prototypes" in errors.caption
    assert "more than 1%" in hulls.caption


@pytest.mark.process
def test_three_figures_show_the_first_seed(studied: Path) -> None:
    rows = read_rows(studied)
    shown = averaging_figure.shown_rows(rows)
    assert [(row.cell["pool"], row.cell["seed"]) for row in shown] == [("gap", 0), ("gsp", 0)]
    found = averaging_section.section(studied, rows)
    assert len(found.pictures) == 3
    assert all(it.png.startswith(PNG) and it.alt for it in found.pictures)
    assert "classes of CIFAR-10" in found.question


def test_without_arrays_there_are_tables_alone(studied: Path) -> None:
    rows = [row for row in read_rows(studied) if row.arrays is None]
    assert averaging_section.section(studied, rows).pictures == []


def test_of_many_classes_some_spread_over_all_are_drawn() -> None:
    assert averaging_figure.shown_classes(made_up(4)) == [0, 1, 2, 3]
    some = averaging_figure.shown_classes(made_up(20))
    assert len(some) == len(set(some)) == averaging_figure.MOST_CLASSES
    assert (some[0], some[-1]) == (0, 19)


def test_one_pooling_alone_can_be_drawn(studied: Path) -> None:
    rows = [row for row in read_rows(studied) if row.cell["pool"] == "gsp"]
    assert len(averaging_figure.draw_hulls(studied, averaging_figure.shown_rows(rows)).axes) == 3
