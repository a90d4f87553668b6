"""The study of center regularizers in tables and a figure."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from studies.fake_studies import SETTINGS, metrics
from sumpool.studies.centers import section as center_section
from sumpool.system.rows import ResultStore, Row, read_rows

LEVELS = [
    ("none", None, 0.0, 0.40, -2.0),
    ("mhe", 2.0, 1.0, 0.43, -3.6),
    ("r1", 32.0, 1.0, 0.44, -3.0),
    ("r1", 8.0, 0.1, 0.41, -2.5),
    ("uniformface", None, 0.1, 0.42, -2.8),
    ("r2-far", 8.0, 0.1, 0.39, -1.6),
]


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Made-up results."""
    store = ResultStore(tmp_path, "centers", SETTINGS)
    for loss, more in (("pnca", 0.0), ("panchor", 0.02)):
        for seed in range(3):
            for name, lam, weight, score, uniformity in LEVELS:
                cell = {"regularizer": name, "lam": lam, "weight": weight}
                measured = metrics(
                    score + more + 0.01 * (seed - 1),
                    mean_cosine=0.1,
                    nearest_cosine=0.5 + 0.1 * uniformity,
                    mean_distance=1.3,
                    uniformity=uniformity + 0.05 * seed,
                )
                store.add({**cell, "loss": loss, "seed": seed}, measured, 1.0)
    return read_rows(tmp_path)


def test_a_line_for_each_level_in_the_order_of_regularizers(rows: list[Row]) -> None:
    one, two = center_section.tables(rows)
    assert [tuple(row[:3]) for row in one.rows] == [
        ("none", "–", "–"),
        ("r1", "8", "0.1"),
        ("r1", "32", "1"),
        ("r2-far", "8", "0.1"),
        ("uniformface", "–", "0.1"),
        ("mhe", "2", "1"),
    ]
    cells = dict(zip(two.header, two.rows[2], strict=True))
    assert cells["MAP@R"] == "44.0 ± 1.0"
    assert cells["uniformity"] == "-2.95 ± 0.05"
    assert "PANCHOR" in (one.caption or "")


def test_validation_chooses(rows: list[Row]) -> None:
    sentences = center_section.chosen_by_validation(rows)
    assert sentences[1] == (
        "PNCA: validation chooses r1 λ 32 × 1; test MAP@R 44.0 ± 1.0, "
        "without a regularizer 40.0 ± 1.0."
    )
    unregularized = [row for row in rows if row.cell["regularizer"] == "none"]
    assert center_section.chosen_by_validation(unregularized) == []


@pytest.mark.drawn
def test_the_section_has_a_figure(rows: list[Row], tmp_path: Path) -> None:
    section = center_section.section(tmp_path, rows)
    (picture,) = section.pictures
    assert Image.open(io.BytesIO(picture.png)).size[0] > 200
    assert "sumpool study centers --seeds 3" in section.provenance


def test_one_seed_and_one_loss_are_drawn(rows: list[Row]) -> None:
    few = [row for row in rows if row.cell["seed"] == 0 and row.cell["loss"] == "pnca"]
    assert len(center_section.draw(few).axes) == 1
