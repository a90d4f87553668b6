"""The studies of chance-constrained proxies: tables and figures from stored rows alone."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from studies.fake_studies import SETTINGS, metrics
from sumpool.studies.ccp_geometry import section as ccp_geometry_section
from sumpool.studies.ccp_plane import section as ccp_plane_section
from sumpool.studies.ccp_plane.figures import problem_values
from sumpool.studies.ccp_search import section as ccp_search_section
from sumpool.studies.ccp_search.surface import fit_surface
from sumpool.studies.ccp_settings import section as ccp_settings_section
from sumpool.studies.ccp_settings.experiment import LABELS, VARIANTS
from sumpool.studies.ccp_settings.figures import validations
from sumpool.studies.grids import ccp_batch, ccp_pool, ccp_problems, sizes
from sumpool.studies.shared.ccp_labels import note
from sumpool.system.rows import ResultStore, Row, read_rows

LOSSES = ("c2", "c1", "ms", "triplet")
PLANE = {"data": "digits", "proxies": 4, "pool": 16, "loss": "c2"}


def problems(count: int, radius: float = 0.4) -> dict[str, float]:
    return {
        "problems": float(count),
        "spread_first": 0.02,
        "spread_last": 0.1,
        "covering_radius_first": radius,
        "covering_radius_last": radius / count,
        "violation_rate": 0.05,
        "violation_bound": 0.3,
    }


def store_plane(folder: Path, seeds: int = 2) -> list[Row]:
    """Both methods; seed s of the alternating one has s problems more than 6."""
    store = ResultStore(folder, "ccp-plane", PLANE)
    draws = np.random.default_rng(0)
    angles = np.arange(10) / 10 * 2 * np.pi
    middles = 0.8 * np.stack([np.cos(angles), np.sin(angles)], -1)
    for seed in range(seeds):
        for method, count in (("one problem", 1), ("alternating", 6 + seed)):
            own = metrics(0.9 + 0.01 * seed, **problems(count))
            for number in range(1, count + 1):
                own[f"spread_{number}"] = 0.1 if count > 1 else 0.001
                own[f"covering_radius_{number}"] = 0.4 / number
                own[f"relative_radius_{number}"] = 0.5 / number
                own[f"value_{number}"] = 0.8 + 0.01 * number
                own[f"last_step_{number}"] = 100.0 * number
            arrays = None
            if seed == 0:
                shown = [1] if count == 1 else [1, 2, 3, 4, 6]
                size = (len(shown), 10, 4, 2)
                labels = np.repeat(np.arange(10), 20)
                near = middles[:, None] + draws.normal(0, 0.05 if count > 1 else 0.002, size)
                following = near + draws.normal(0, 0.08, size)
                following[-1] = np.nan
                arrays = {
                    "shown": np.array(shown),
                    "embeddings": middles[labels] + draws.normal(0, 0.08, (len(shown), 200, 2)),
                    "converged": near,
                    "next": following,
                    "labels": labels,
                    "class_names": np.array([str(it) for it in range(10)]),
                }
            store.add({"method": method, "seed": seed}, own, 1.0, arrays)
    return read_rows(folder)


def store_problems(folder: Path) -> list[Row]:
    store = ResultStore(folder, "ccp-problems", SETTINGS)
    for seed in range(2):
        for place, loss in enumerate(LOSSES):
            for gain, method in enumerate(("base", "one problem", "alternating")):
                own = metrics(0.2 + 0.03 * place + 0.02 * gain + 0.01 * seed)
                arrays: dict[str, Any] | None = None
                if gain:
                    count = 1 if gain == 1 else 9
                    own |= problems(count)
                    steps = np.random.default_rng(place + seed).geometric(0.3, count) * 20
                    arrays = {"problem_steps": steps}
                store.add({"method": method, "loss": loss, "seed": seed}, own, 1.0, arrays)
    return read_rows(folder)


def store_geometry(folder: Path) -> list[Row]:
    store = ResultStore(folder, "ccp-geometry", SETTINGS)
    draws = np.random.default_rng(0)
    for seed in range(2):
        for method, width in (("one problem", 9.0), ("alternating", 5.0)):
            more = {"mean_covering_radius": width / 30, "class_distance": 0.9}
            own = metrics(0.3, **problems(3), **more, relative_radius=width / 27)
            labels = np.repeat(np.arange(13), 20)
            middles = draws.normal(0, 25, (13, 2))
            arrays = {
                "points": middles[labels] + draws.normal(0, width, (260, 2)),
                "labels": labels,
                "method": np.array("t-SNE"),
            }
            cell = {"method": method, "loss": "c2", "seed": seed}
            store.add(cell, own, 1.0, arrays if seed == 0 else None)
    return read_rows(folder)


def store_search(folder: Path, trials: int = 16) -> list[Row]:
    store = ResultStore(folder, "ccp-search", SETTINGS)
    draws = np.random.default_rng(0)
    for trial in range(trials):
        pull, proxies = 10 ** draws.uniform(-6, 0), int(draws.integers(1, 13))
        score = 0.3 - 0.01 * (np.log10(pull) + 4) ** 2 + 0.005 * proxies
        cell = {"trial": trial, "pull": pull, "proxies": proxies, "loss": "c2", "seed": 0}
        store.add(cell, metrics(float(score), **problems(5)), 1.0)
    return read_rows(folder)


def store_pool(folder: Path) -> list[Row]:
    store = ResultStore(folder, "ccp-pool", SETTINGS)
    for seed in range(2):
        for proxies in (8, 1, 4):
            for pool in (12, 1, 4, 8, 16):
                if pool >= proxies:
                    own = metrics(0.2 + 0.01 * proxies + 0.001 * pool + 0.01 * seed)
                    cell = {"proxies": proxies, "pool": pool, "loss": "c2", "seed": seed}
                    store.add(cell, own, 1.0)
    return read_rows(folder)


def store_batch(folder: Path) -> list[Row]:
    store = ResultStore(folder, "ccp-batch", SETTINGS)
    for seed in range(2):
        for size in (128, 16, 32, 64):
            for method in ("alternating", "base"):
                gain = 0.1 if method == "alternating" else 0.0005 * size
                cell = {"method": method, "batch_size": size, "loss": "c2", "seed": seed}
                store.add(cell, metrics(0.2 + gain + 0.02 * seed), 1.0)
    return read_rows(folder)


def store_settings(folder: Path) -> list[Row]:
    """C2 in all variants, the best first; MS in two, with the second seed of one alone."""
    store = ResultStore(folder, "ccp-settings", SETTINGS)
    for seed in range(2):
        for place, variant in enumerate(reversed(VARIANTS)):
            cell = {"variant": variant, "loss": "c2", "seed": seed}
            own = metrics(0.3 - 0.01 * place + 0.05 * seed)
            if not variant.startswith("base"):
                own |= problems(4) | {"travel_first": 0.01, "travel_last": 0.002}
            curve = np.array([[20.0, 0.1], [40.0, 0.3 - 0.01 * place], [60.0, 0.2]])
            store.add(cell, own, 1.0, {"validations": curve} if seed == 0 else None)
    store.add({"variant": "base", "loss": "ms", "seed": 1}, metrics(0.25), 1.0)
    for seed in range(2):
        cell = {"variant": "thesis", "loss": "ms", "seed": seed}
        store.add(cell, metrics(0.2 + 0.02 * seed, **problems(1)), 1.0)
    return read_rows(folder)


def store_sizes(folder: Path) -> list[Row]:
    store = ResultStore(folder, "sizes", SETTINGS)
    for size in (64, 32):
        for loss, name in (("ms", "none"), ("panchor", "r2-far")):
            cell = {"embedding_size": size, "regularizer": name, "loss": loss, "seed": 0}
            store.add(cell, metrics(0.2 + 0.001 * size), 1.0)
    return read_rows(folder)


#: What is stored for each section, and how many figures it has.
STORED = {
    ccp_plane_section: (store_plane, 2),
    ccp_problems: (store_problems, 2),
    ccp_geometry_section: (store_geometry, 1),
    ccp_search_section: (store_search, 1),
    ccp_pool: (store_pool, 1),
    ccp_batch: (store_batch, 1),
    sizes: (store_sizes, 1),
    ccp_settings_section: (store_settings, 2),
}


@pytest.mark.drawn
@pytest.mark.parametrize(
    "module",
    [sizes, *(pytest.param(it, marks=pytest.mark.process) for it in STORED if it != sizes)],
)
def test_every_section_is_drawn(module: ModuleType, tmp_path: Path) -> None:
    make, _ = STORED[module]
    for picture in module.section(tmp_path, make(tmp_path)).pictures:
        drawn = np.asarray(Image.open(io.BytesIO(picture.png)).convert("L"))
        assert drawn.std() > 5


@pytest.mark.parametrize("module", list(STORED), ids=lambda it: it.__name__.split(".")[-1])
def test_every_section_is_made_from_stored_rows(module: ModuleType, tmp_path: Path) -> None:
    make, count = STORED[module]
    section = module.section(tmp_path, make(tmp_path))
    assert len(section.pictures) == count
    assert all(picture.alt for picture in section.pictures)
    assert section.tables == module.tables(read_rows(tmp_path))
    study = read_rows(tmp_path)[0].study
    data = "" if study == "ccp-plane" else " --data DIR"  # digits need no folder
    assert re.match(rf"sumpool study {study} --seeds \d{data};", section.provenance)


def cells_of(table: Any) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.header[1:], row[1:], strict=True)) for row in table.rows}


def test_the_plane_has_numbers_from_problem_to_problem(tmp_path: Path) -> None:
    rows = store_plane(tmp_path)
    assert problem_values(rows[1], "last_step") == [100, 200, 300, 400, 500, 600]
    methods, steps = (cells_of(table) for table in ccp_plane_section.tables(rows))
    assert list(methods) == ["one problem", "alternating problems"]
    assert methods["alternating problems"]["problems"] == "6.5 ± 0.7"
    assert list(steps) == [*map(str, range(1, 8)), "last", "one problem alone"]
    assert steps["2"]["covering radius"] == "0.200 ± 0.000"
    assert steps["2"]["radius / distance of classes"] == "0.250 ± 0.000"
    assert steps["7"]["runs"] == "1"
    assert steps["last"]["last step"] == "650 ± 71"
    assert steps["one problem alone"]["proxy spread"] == "0.001 ± 0.000"


def test_problems_of_every_loss_and_method_are_tabulated(tmp_path: Path) -> None:
    (table,) = ccp_problems.tables(store_problems(tmp_path))
    cells = cells_of(table)
    assert list(cells)[:3] == ["C1, base loss", "C1, one problem", "C1, alternating problems"]
    assert cells["C2, base loss"]["MAP@R [%]"] == "20.5 ± 0.7"
    assert cells["C2, base loss"]["problems"] == "–"
    assert cells["TRIPLET, alternating problems"]["spread, last"] == "0.100 ± 0.000"


def test_variants_are_compared_with_the_base_loss_seed_by_seed(tmp_path: Path) -> None:
    rows = store_settings(tmp_path)
    (table,) = ccp_settings_section.tables(rows)
    cells = cells_of(table)
    names = [LABELS.get(name, name) for name in VARIANTS]
    assert list(cells)[:16] == [f"C2, {name}" for name in names]
    assert list(cells)[16:] == ["MS, base loss", "MS, proxies, back to the best weights"]
    assert cells["C2, base loss"]["MAP@R [%]"] == "17.5 ± 3.5"
    assert cells["C2, base loss"]["gain [points]"] == "–"
    assert cells["C2, unit vectors"]["gain [points]"] == "+12.0 ± 0.0"
    assert cells["C2, unit vectors"]["travel, last"] == "0.002 ± 0.000"
    assert cells["MS, proxies, back to the best weights"]["gain [points]"] == "-3.0"  # of seed 1
    alone = [row for row in rows if row.cell["variant"] == "thesis" and row.cell["loss"] == "ms"]
    (table,) = ccp_settings_section.tables(alone)
    assert cells_of(table)["MS, proxies, back to the best weights"]["gain [points]"] == "–"


def test_curves_are_drawn_of_what_is_stored(tmp_path: Path) -> None:
    rows = store_settings(tmp_path)
    curves = validations(tmp_path, rows, ccp_settings_section.CURVES)
    assert {row.cell["variant"] for row, _ in curves} == set(ccp_settings_section.CURVES)
    assert {(row.cell["loss"], row.cell["seed"]) for row, _ in curves} == {("c2", 0)}
    without = [row for row in rows if row.cell["seed"] == 1]
    assert len(ccp_settings_section.section(tmp_path, without).pictures) == 1


def test_travel_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    older, newer = store_problems(tmp_path / "older"), store_settings(tmp_path / "newer")
    for rows, module, shown in ((older, ccp_problems, False), (newer, ccp_settings_section, True)):
        assert ("travel, first" in module.tables(rows)[0].header) is shown
        assert ("Travel" in note(rows)) is shown


def test_pools_and_batches_are_grids(tmp_path: Path) -> None:
    (pool,) = ccp_pool.tables(store_pool(tmp_path / "pool"))
    cells = cells_of(pool)
    assert pool.header == ["pool b", "1 proxy", "4 proxies", "8 proxies"]
    assert list(cells) == ["1", "4", "8", "12", "16"]
    assert cells["1"] == {"1 proxy": "21.6 ± 0.7", "4 proxies": "–", "8 proxies": "–"}
    (batch,) = ccp_batch.tables(store_batch(tmp_path / "batch"))
    assert list(cells_of(batch)) == ["16", "32", "64", "128"]
    assert cells_of(batch)["16"]["base loss"] == "21.8 ± 1.4"


def test_the_best_trials_come_first(tmp_path: Path) -> None:
    rows = store_search(tmp_path)
    (table,) = ccp_search_section.tables(rows)
    scores = [float(row[3]) for row in table.rows]
    assert len(scores) == ccp_search_section.LISTED
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == round(100 * max(row.metrics["validation_map_at_r"] for row in rows), 1)


def test_one_trial_is_enough_for_a_surface(tmp_path: Path) -> None:
    rows = store_search(tmp_path, 1)
    assert ccp_search_section.section(tmp_path, rows).pictures


def test_the_surface_goes_through_trials_without_noise() -> None:
    draws = np.random.default_rng(0)
    points = draws.uniform(size=(40, 2))
    values = np.sin(4 * points[:, 0]) + points[:, 1]
    asked = draws.uniform(0.2, 0.8, size=(50, 2))
    surface = fit_surface(points, values, asked)
    truth = np.sin(4 * asked[:, 0]) + asked[:, 1]
    assert np.abs(surface.mean - truth).max() < 0.05
    assert (surface.deviation > 0).all()


def test_the_surface_of_noise_is_flat() -> None:
    draws = np.random.default_rng(1)
    points, values = draws.uniform(size=(40, 2)), draws.normal(size=40)
    surface = fit_surface(points, values, points)
    assert surface.mean.std() < 0.5 * values.std()
    same = fit_surface(points, np.ones(40), points)
    np.testing.assert_allclose(same.mean, 1.0)


@pytest.mark.parametrize("evaluated_on", ["test", "validation"])
def test_a_search_lists_test_scores_only_where_the_test_set_was_read(
    evaluated_on: str, tmp_path: Path
) -> None:
    store = ResultStore(tmp_path, "ccp-search", {**SETTINGS, "evaluated_on": evaluated_on})
    own = {**metrics(0.25), "validation_map_at_r": 0.5, "problems": 2.0}
    cell = {"trial": 0, "pull": 0.1, "proxies": 4, "loss": "c2", "seed": 0}
    store.add(cell, own, 1.0)
    (table,) = ccp_search_section.tables(read_rows(tmp_path))
    assert table.rows[0][3:] == ["50.0", *(["25.0"] if evaluated_on == "test" else []), "2.0"]
