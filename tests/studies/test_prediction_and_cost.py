"""The pages of the prediction and the cost study, from made-up rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sumpool.studies.page import section_of, tables_of
from sumpool.studies.prediction import figures as prediction_figure
from sumpool.studies.prediction import section as prediction_section
from sumpool.system.rows import ResultStore, read_rows

PNG = b"\x89PNG\r\n"
SHARED = {"chance": 0.25, "attribute_perplexity": 3.5, "class_perplexity": 2.5, "best_step": 200}


@pytest.fixture
def predicted(tmp_path: Path) -> Path:
    folder = tmp_path / "prediction"
    settings = {
        "data": "CIFAR-10",
        "prototypes": 4,
        "splits": 1000,
        "ridge": 0.05,
        "small_ridge": 1e-6,
    }
    store = ResultStore(folder, "prediction", settings)
    rng = np.random.default_rng(0)
    for seed in range(2):
        # As they come from cells that run in parallel: in any order.
        for used in (True, False):
            arrays = {
                "histograms": rng.dirichlet(np.ones(4), 8).astype(np.float32),
                "class_names": np.array([f"class_{it}" for it in range(8)]),
                "images": rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8),
                "image_classes": np.array([0, 3, 7]),
                "dominant": rng.integers(0, 4, (3, 8, 8)),
                "weights": rng.random((3, 8, 8)).astype(np.float32),
            }
            scores = {
                "accuracy_l2": 0.3 + 0.2 * used + 0.02 * seed,
                "accuracy_l2_std": 0.1,
                "accuracy_cosine": 0.4,
                "accuracy_cosine_std": 0.2,
                "accuracy_l2_small_ridge": 0.7,
                "accuracy_cosine_small_ridge": 0.8,
                "map_at_r": 0.5,
                "precision_at_1": 0.6,
            }
            store.add(
                {"eps": 0.5, "zero_shot": used, "seed": seed},
                {**SHARED, **scores},
                1.0,
                arrays if seed == 0 else None,
            )
    return folder


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    folder = tmp_path / "cost"
    settings = {
        "device_name": "A device",
        "memory": "peak",
        "batch": 32,
        "channels": 128,
        "prototypes": 64,
        "dtype": "float32",
        "rounds": 9,
        "mu": 0.3,
        "eps": 5.0,
    }
    store = ResultStore(folder, "cost", settings)
    for size in ("16×16", "7×7"):
        for solver, k in [("autodiff", 100), ("autodiff", 1), ("iterative", 10), ("exact", None)]:
            metrics = {
                "step_ms": 2.0 + (k or 0),
                "ratio_to_exact": 1 + (k or 0) / 2,
                "memory_bytes": 2**20 * (1 + (k or 0)),
                "weight_error": 0.1 / (k or 1e6),
            }
            store.add({"solver": solver, "k": k, "size": size, "seed": 0}, metrics, 1.0)
    return folder


def test_prediction_table_has_both_variants_and_chance(predicted: Path) -> None:
    found, models = tables_of(predicted)
    lines = {row[0]: list(row[1:]) for row in found.rows}
    assert list(lines) == ["ε = 0.5, without L_ZS", "ε = 0.5, with L_ZS", "chance"]
    assert lines["ε = 0.5, without L_ZS"][:4] == ["31.0 ± 1.4", "10.0", "40.0 ± 0.0", "20.0"]
    assert lines["ε = 0.5, with L_ZS"][0] == "51.0 ± 1.4"
    assert lines["chance"][:3] == ["25.0", "", "25.0"]
    assert lines["ε = 0.5, with L_ZS"][4:] == ["70.0 ± 0.0", "80.0 ± 0.0"]
    assert "1000 splits" in found.caption
    assert [row[0] for row in models.rows] == ["ε = 0.5, without L_ZS", "ε = 0.5, with L_ZS"]
    assert models.rows[0][1:4] == ["3.50 ± 0.00", "2.50 ± 0.00", "50.0 ± 0.0"]


@pytest.mark.drawn
def test_prediction_draws_histograms_and_maps_of_the_first_seed(predicted: Path) -> None:
    rows = read_rows(predicted)
    shown = prediction_figure.shown_rows(rows)
    assert [dict(row.cell) for row in shown] == [
        {"eps": 0.5, "zero_shot": False, "seed": 0},
        {"eps": 0.5, "zero_shot": True, "seed": 0},
    ]
    pictures = section_of(predicted).pictures
    assert len(pictures) == 2
    assert all(it.png.startswith(PNG) for it in pictures)


def test_prediction_without_arrays_has_its_table_alone(predicted: Path) -> None:
    rows = [row for row in read_rows(predicted) if row.arrays is None]
    assert prediction_section.section(predicted, rows).pictures == []


def test_a_position_is_painted_as_strongly_as_it_is_weighted() -> None:
    image = np.full((8, 8, 3), 100, np.uint8)
    dominant = np.array([[0, 1], [2, 0]])
    weights = np.array([[0.0, 1.0], [0.5, 0.0]], np.float32)
    painted = prediction_figure.colored(image, dominant, weights).astype(int)
    np.testing.assert_array_equal(painted[:4, :4], image[:4, :4])
    np.testing.assert_array_equal(painted[4:, 4:], image[4:, 4:])
    distance = abs(painted - 100).sum(-1)
    assert (distance[:4, 4:] > 50).all()
    assert (distance[4:, :4] > 20).all()
    # Each position has one color all over.
    assert len(np.unique(painted[:4, 4:].reshape(-1, 3), axis=0)) == 1


@pytest.mark.drawn
def test_cost_has_a_table_a_size_with_iterations_in_order(timed: Path) -> None:
    small, large = tables_of(timed)
    assert "7×7 features" in small.caption
    assert "16×16 features" in large.caption
    assert [tuple(row[:2]) for row in small.rows] == [
        ("exact", "–"),
        ("k iterations, closed-form gradient", "10"),
        ("autodiff through k iterations", "1"),
        ("autodiff through k iterations", "100"),
    ]
    assert small.rows[3][2:] == ["102.00", "51.00", "101.00", "0.1"]
    assert small.header[4] == "peak memory [MiB]"
    part = section_of(timed)
    assert len(part.pictures) == 2
    assert part.provenance.startswith("sumpool study cost")
