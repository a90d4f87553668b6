"""The studies on collages: their numbers in tables, their figures drawn."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from studies.fake_studies import LOSSES, SETTINGS, collages, metrics, store_cells, store_collage
from sumpool.report.labels import STAND_IN, conditions
from sumpool.studies.collage import attention_figure, method_figure
from sumpool.studies.collage import section as collage_section
from sumpool.studies.page import section_of, tables_of, write_page
from sumpool.system.rows import ResultStore, read_rows

SCORES = {"distilled": 0.25, "gsp+zs": 0.17, "gsp": 0.13, "gmp+gsp": 0.1, "gsop": 0.1,
          "netvlad-8192": 0.2, "delf": 0.09, "gap": 0.09}  # fmt: skip


def cells_of(folder: Path, number: int = 0) -> dict[str, dict[str, str]]:
    """The cells of a table by row and column."""
    table = tables_of(folder)[number]
    return {row[0]: dict(zip(table.header[1:], row[1:], strict=True)) for row in table.rows}


@pytest.fixture(scope="module")
def collage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up results of the collage study."""
    return store_collage(tmp_path_factory.mktemp("rows") / "collage", SCORES)


def test_collage_table_has_each_method_loss_and_rate(collage: Path) -> None:
    cells = cells_of(collage)
    assert list(cells) == ["gap", "delf", "gsop", "netvlad-8192", "gmp+gsp", "gsp", "gsp+zs",
                           "distilled"]  # fmt: skip
    assert len(cells["gap"]) == 2 * 2 * 3
    assert cells["gsp"]["C2 1e-3 MAP@R"] == "13.0 ± 1.0"
    assert cells["gsp"]["C2 3e-4 MAP@R"] == "15.0 ± 1.0"
    assert cells["gsp"]["PNCA 3e-4 P@1"] == "31.0 ± 2.0"
    assert cells["gap"]["C2 1e-3 weight"] == "28.0 ± 0.0"
    assert cells["gsop"]["C2 1e-3 weight"] == "–"


def test_the_best_of_128_dimensions_stands_out(collage: Path) -> None:
    (table,) = tables_of(collage)
    marked = {(table.rows[line][0], table.header[column]) for line, column in table.strong}
    scores = [name for name in table.header if name.endswith(("MAP@R", "P@1"))]
    assert marked == {("gsp+zs", name) for name in scores}


def test_the_gap_that_is_closed_is_named_for_each_loss_and_rate(collage: Path) -> None:
    sentences = collage_section.gap_closed(read_rows(collage))
    assert len(sentences) == 4
    assert sentences[0] == "C2, learning rate 1e-3: gsp 25%, gsp+zs 50% of 16.0 points"


@pytest.mark.drawn
def test_the_section_has_bars_attention_and_the_gap(collage: Path, tmp_path: Path) -> None:
    page = write_page([collage], tmp_path / "page.html", "Collages").read_text()
    assert page.count("<img ") == 2
    assert "<strong>17.0 ± 1.0</strong>" in page
    assert "PNCA, learning rate 3e-4: gsp 25%, gsp+zs 50% of 16.0 points" in page
    assert "All runs share: data CIFAR-100, steps 2000" in page


def test_what_is_missing_or_not_ahead_is_named(tmp_path: Path) -> None:
    partly = store_collage(tmp_path / "a", {"gap": 0.1, "gsp": 0.1}, rates=(1e-3,), seeds=1)
    assert collage_section.gap_closed(read_rows(partly))[0] == "C2, learning rate 1e-3: –"
    behind = store_collage(tmp_path / "b", {"gap": 0.1, "distilled": 0.08}, rates=(1e-3,), seeds=1)
    assert "no better than gap (-2.0 points)" in collage_section.gap_closed(read_rows(behind))[0]


def test_a_single_seed_has_no_spread(tmp_path: Path) -> None:
    stand_in = {**SETTINGS, "data": "stand-in"}
    folder = store_collage(tmp_path, {"gap": 0.1, "gsp": 0.12}, seeds=1, settings=stand_in)
    assert "±" not in tables_of(folder)[0].text()
    assert conditions(stand_in)[0] == STAND_IN
    assert STAND_IN not in conditions(SETTINGS)


def test_cells_that_are_not_computed_are_dashes(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, "collage", SETTINGS)
    store.add({"method": "gap", "loss": "c2", "lr": 1e-3, "seed": 0}, metrics(0.1), 1.0)
    store.add({"method": "gsp", "loss": "pnca", "lr": 1e-3, "seed": 0}, metrics(0.2), 1.0)
    cells = cells_of(tmp_path)
    assert cells["gap"]["C2 1e-3 MAP@R"] == "10.0"
    assert cells["gap"]["PNCA 1e-3 MAP@R"] == "–"
    assert len(section_of(tmp_path).pictures) == 1  # no arrays: nothing to look at


def test_fewer_seeds_than_elsewhere_are_counted_in_brackets(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, "collage", SETTINGS)
    for method, seeds in (("gap", 2), ("gsp", 1)):
        for seed in range(seeds):
            cell = {"method": method, "loss": "c2", "lr": 1e-3, "seed": seed}
            store.add(cell, metrics(0.1), 1.0)
    cells = cells_of(tmp_path)
    assert cells["gap"]["C2 1e-3 MAP@R"] == "10.0 ± 0.0"
    assert cells["gsp"]["C2 1e-3 MAP@R"] == "10.0 (1)"
    assert "in brackets how many seeds" in tables_of(tmp_path)[0].caption


def test_the_bound_lies_on_the_axes_of_every_panel(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, "collage", SETTINGS)
    for loss, bound in (("c2", 0.2), ("pnca", 0.3)):
        for method, value in (("gap", 0.1), ("distilled", bound)):
            cell = {"method": method, "loss": loss, "lr": 1e-3, "seed": 0}
            store.add(cell, metrics(value), 1.0)
    figure = method_figure.draw(read_rows(tmp_path))
    for axes, bound in zip(figure.axes, (20, 30), strict=True):
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlim()[1] > bound


def test_attention_is_drawn_without_the_images(tmp_path: Path) -> None:
    arrays = collages(0.6)
    del arrays["images"]
    store = ResultStore(tmp_path, "collage", SETTINGS)
    cell = {"method": "gsp", "loss": "c2", "lr": 1e-3, "seed": 0}
    row = store.add(cell, metrics(0.1, foreground_weight=0.6), 1.0, arrays)
    assert attention_figure.draw(store.folder, [row]).axes


def test_attention_is_of_one_loss_and_rate_the_best_of_gsp(collage: Path) -> None:
    shown = attention_figure.shown_rows(read_rows(collage))
    assert [row.cell["method"] for row in shown] == ["gap", "delf", "gsp", "gsp+zs"]
    assert {(row.cell["loss"], row.cell["lr"], row.cell["seed"]) for row in shown} == {
        ("pnca", 3e-4, 0)
    }


def test_attention_shows_the_same_whatever_weights_sum_to(collage: Path, tmp_path: Path) -> None:
    drawn = []
    for scale in (1.0, 7.0):
        arrays = {name: some[:2] for name, some in collages(0.6).items()}
        arrays["weights"] = arrays["weights"] * np.float32(scale)
        store = ResultStore(tmp_path / str(scale), "collage", SETTINGS)
        cell = {"method": "gsp", "loss": "c2", "lr": 1e-3, "seed": 0}
        row = store.add(cell, metrics(0.1, foreground_weight=0.6), 1.0, arrays)
        buffer = io.BytesIO()
        attention_figure.draw(store.folder, [row]).savefig(buffer, dpi=50)
        drawn.append(np.asarray(Image.open(buffer).convert("RGB"), np.int16))
    assert np.abs(drawn[0] - drawn[1]).max() <= 1


def test_components_are_two_by_two(tmp_path: Path) -> None:
    store_cells(
        tmp_path,
        "components",
        [
            (
                {"gsp": gsp, "zero_shot": zero_shot, "loss": loss, "seed": seed},
                metrics(0.1 + 0.04 * gsp + 0.02 * zero_shot + 0.01 * seed),
            )
            for gsp in (False, True)
            for zero_shot in (False, True)
            for loss in LOSSES
            for seed in range(2)
            if not (zero_shot and loss == "pnca")
        ],
    )
    c2, pnca = cells_of(tmp_path, 0), cells_of(tmp_path, 1)
    assert c2["average pooling"]["MAP@R without L_ZS"] == "10.5 ± 0.7"
    assert c2["average pooling"]["MAP@R with L_ZS"] == "12.5 ± 0.7"
    assert c2["sum pooling (GSP)"]["MAP@R without L_ZS"] == "14.5 ± 0.7"
    assert c2["sum pooling (GSP)"]["P@1 with L_ZS"] == "33.0 ± 1.4"
    assert pnca["sum pooling (GSP)"]["MAP@R with L_ZS"] == "–"
    assert "weight" not in tables_of(tmp_path)[0].text()
    assert len(section_of(tmp_path).pictures) == 1


@pytest.mark.drawn
def test_shares_are_sorted_and_averaged(tmp_path: Path) -> None:
    store_cells(
        tmp_path,
        "share",
        [
            (
                {"mu": mu, "loss": loss, "seed": seed},
                metrics(0.2 - 0.1 * mu + 0.02 * seed, foreground_weight=1 - 0.75 * mu),
            )
            for mu in (1.0, 0.2)
            for loss in LOSSES
            for seed in range(2)
            if (mu, loss, seed) != (0.2, "c2", 1)
        ],
    )
    cells = cells_of(tmp_path)
    assert list(cells) == ["0.2", "1"]
    assert cells["0.2"]["C2 MAP@R"] == "18.0"
    assert cells["0.2"]["PNCA MAP@R"] == "19.0 ± 1.4"
    assert cells["1"]["PNCA weight"] == "25.0 ± 0.0"
    assert section_of(tmp_path).pictures[0].png.startswith(b"\x89PNG")


@pytest.mark.drawn
def test_prototypes_make_a_grid_for_each_loss(tmp_path: Path) -> None:
    store_cells(
        tmp_path,
        "prototypes",
        [
            ({"prototypes": m, "eps": eps, "loss": loss, "seed": 0}, metrics(m / 1000 + eps / 100))
            for m in (128, 16)
            for eps in (10.0, 0.5)
            for loss in LOSSES
            if (m, eps, loss) != (16, 0.5, "pnca")
        ],
    )
    assert cells_of(tmp_path) == {
        "16": {"ε = 0.5": "2.1", "ε = 10": "11.6"},
        "128": {"ε = 0.5": "13.3", "ε = 10": "22.8"},
    }
    assert cells_of(tmp_path, 1)["16"]["ε = 0.5"] == "–"
    assert section_of(tmp_path).pictures[0].png.startswith(b"\x89PNG")


@pytest.mark.drawn
def test_variants_are_compared_with_none_seed_by_seed(tmp_path: Path) -> None:
    gains = {"λ = 0.5": -0.01, "none": 0.0, "λ = 0.1": 0.02}
    store_cells(
        tmp_path,
        "zero-shot-loss",
        [
            (
                {"variant": variant, "loss": "c2", "lr": lr, "seed": seed},
                metrics(
                    0.1 + gain + 0.03 * seed,
                    **({} if variant == "none" else {"gradient_ratio": 0.5 + seed}),
                ),
            )
            for variant, gain in gains.items()
            for lr in (3e-4, 1e-3)
            for seed in range(2)
            if (variant, lr, seed) != ("λ = 0.1", 3e-4, 1)
        ],
    )
    first, second = cells_of(tmp_path, 0), cells_of(tmp_path, 1)
    assert list(first) == ["none", "λ = 0.1", "λ = 0.5"]  # the best first
    assert first["none"]["change [points]"] == first["none"]["gradient ratio, end"] == "–"
    assert first["λ = 0.5"]["MAP@R [%]"] == "10.5 ± 2.1"
    assert first["λ = 0.5"]["change [points]"] == "-1.0 ± 0.0"
    assert first["λ = 0.1"]["change [points]"] == "+2.0 ± 0.0"
    assert first["λ = 0.1"]["gradient ratio, end"] == "1.00 ± 0.71"
    assert second["λ = 0.1"]["change [points]"] == "+2.0"  # one seed in common
    assert [re.search(r"rate (\S+),", table.caption)[1] for table in tables_of(tmp_path)] == [  # type: ignore[index]
        "1e-3",
        "3e-4",
    ]
    assert section_of(tmp_path).pictures[0].png.startswith(b"\x89PNG")
