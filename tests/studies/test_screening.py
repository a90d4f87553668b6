"""Main effects: those of a plan with known answers, and their error from seeds alone."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from studies.fake_studies import LOSSES, metrics, store_cells
from sumpool.studies.grids.main_effects import main_effects
from sumpool.studies.page import section_of, tables_of
from sumpool.system.rows import read_rows

#: What the step from low to high adds to MAP@R.
EFFECTS = {"prototypes": 0.02, "mu": -0.03, "eps": 0.01, "zero_shot": 0.0}
NOISE = (-0.01, 0.0, 0.01)


def store_half(folder: Path, seeds: int) -> Path:
    """The half of all combinations whose levels have an even sum."""
    levels = {
        "prototypes": (16, 128),
        "mu": (0.3, 0.7),
        "eps": (0.5, 20.0),
        "zero_shot": (0.1, 0.5),
    }
    cells = []
    for three in itertools.product((0, 1), repeat=3):
        steps = (*three, sum(three) % 2)
        score = 0.2 + sum(step * it for step, it in zip(steps, EFFECTS.values(), strict=True))
        for loss, seed in itertools.product(LOSSES, range(seeds)):
            cell = {
                **{name: levels[name][step] for name, step in zip(levels, steps, strict=True)},
                "loss": loss,
                "seed": seed,
            }
            cells.append((cell, metrics(score + (NOISE[seed] if seeds > 1 else 0))))
    return store_cells(folder, "screening", cells)


def test_effects_are_those_that_were_put_in(tmp_path: Path) -> None:
    rows = [row for row in read_rows(store_half(tmp_path, 3)) if row.cell["loss"] == "c2"]
    found = main_effects(rows, "map_at_r")
    assert list(found) == list(EFFECTS)
    for factor, effect in found.items():
        assert effect.difference == pytest.approx(EFFECTS[factor], abs=1e-12)
        # The seeds deviate by 0.01; 12 runs at each level.
        assert effect.error == pytest.approx(0.01 * math.sqrt(1 / 12 + 1 / 12))
    assert (found["eps"].low, found["eps"].high) == (0.5, 20.0)


def test_one_seed_has_no_error(tmp_path: Path) -> None:
    folder = store_half(tmp_path, 1)
    rows = [row for row in read_rows(folder) if row.cell["loss"] == "c2"]
    assert all(effect.error is None for effect in main_effects(rows, "map_at_r").values())
    effects, runs = tables_of(folder)
    assert "±" not in "".join(cell for row in [*effects.rows, *runs.rows] for cell in row)


@pytest.mark.drawn
def test_tables_have_the_effects_and_the_runs(tmp_path: Path) -> None:
    effects, runs = tables_of(store_half(tmp_path, 3))
    assert effects.header == ["factor", "levels", "C2", "PNCA"]
    assert effects.rows[0] == ["prototypes m", "16 → 128", "+2.0 ± 0.4", "+2.0 ± 0.4"]
    assert effects.rows[1] == ["share μ", "0.3 → 0.7", "-3.0 ± 0.4", "-3.0 ± 0.4"]
    assert len(runs.rows) == 8
    assert runs.rows[0][:5] == ["16", "0.3", "0.5", "0.1", "20.0 ± 1.0"]
    part = section_of(tmp_path)
    assert "8 of them" in part.question
    assert part.pictures[0].png.startswith(b"\x89PNG")


def test_a_factor_at_one_level_has_no_effect_to_tell(tmp_path: Path) -> None:
    cell = {"prototypes": 16, "mu": 0.3, "eps": 0.5, "zero_shot": 0.1, "loss": "c2", "seed": 0}
    store_cells(tmp_path, "screening", [(cell, metrics(0.1)), ({**cell, "mu": 0.7}, metrics(0.2))])
    effects, _ = tables_of(tmp_path)
    assert [row[2] for row in effects.rows] == ["–", "+10.0", "–", "–"]
    assert section_of(tmp_path).pictures
