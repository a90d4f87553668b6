"""Grids: what they hold, and what is refused before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.miniatures import cub, image
from sumpool.bench.cells import BenchCell
from sumpool.bench.datasets import DataSource, find_data
from sumpool.bench.grid import Grid, GridError, expand
from sumpool.bench.preflight import check_cells
from sumpool.bench.settings import parse_settings
from sumpool.data import DataError
from sumpool.training import ConfigError

CUB = DataSource("cub", "cub", Path("/data/CUB_200_2011"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    """Twelve classes to learn from and two to test on, of five tiny images each."""
    root = tmp_path_factory.mktemp("data") / "photos"
    for number in range(14):
        for index in range(5):
            image(root / ("train" if number < 12 else "test") / f"{number}" / f"{index}.png")
    return find_data(str(root), root)


def grid(protocol: str = "fair", data: Sequence[DataSource] = (CUB,), **options: Any) -> Grid:
    return Grid(protocol, data, **{"poolings": ["gap"], **options})


def names(cells: list[BenchCell]) -> set[tuple[str, str]]:
    return {(cell.loss, cell.method) for cell in cells}


def test_a_fair_grid_has_four_folds_and_three_seeds_of_each_method() -> None:
    cells = expand(grid(poolings=["gap", "gsp"], losses=["c1", "c2"]))
    assert len(cells) == 2 * 2 * 4 * 3
    assert len({cell.id for cell in cells}) == len(cells)
    assert len({cell.group for cell in cells}) == 4
    assert names(cells) == {(loss, it) for loss in ("c1", "c2") for it in ("gap", "gsp+zs")}
    first = cells[0]
    assert first.name == "fair cub tf_efficientnet_lite0 c1 gap fold 1 seed 0"
    assert (first.config.fold, first.config.seed, first.config.embedding_size) == (1, 0, 128)
    assert first.config.stop.patience == 15  # nothing is left open


def test_switches_are_combined_with_everything() -> None:
    cells = expand(grid(poolings=["gsp"], zero_shot=[False, True], ccp=[False, True], seeds=1))
    assert names(cells) == {("c2", it) for it in ("gsp", "gsp+zs", "ccp+gsp", "ccp+gsp+zs")}
    with_memory = expand(grid(losses=["c1", "c2"], xbm=[True], seeds=1))
    assert names(with_memory) == {("c1", "xbm+gap"), ("c2", "xbm+gap")}
    assert {cell.config.loss for cell in with_memory} == {"xbm", "xbm-c2"}
    spread = expand(grid(losses=["pnca"], center_regs=[None, "r1"], seeds=1))
    assert names(spread) == {("pnca", "gap"), ("pnca", "gap+reg:r1")}


def test_folds_and_seeds_can_be_a_part_of_the_protocol() -> None:
    cells = expand(grid(folds=[2, 4], seeds=2))
    assert [(cell.member.fold, cell.member.seed) for cell in cells] == [
        (2, 0),
        (2, 1),
        (4, 0),
        (4, 1),
    ]
    whole = {cell.id for cell in expand(grid())}
    assert {cell.id for cell in cells} <= whole


def test_options_for_all_cells_are_set_in_all() -> None:
    cells = expand(grid(options={"stop.max_steps": 4, "embedding_size": 64}))
    assert {(cell.config.stop.max_steps, cell.config.embedding_size) for cell in cells} == {(4, 64)}
    assert not {cell.id for cell in cells} & {cell.id for cell in expand(grid())}


def test_the_place_of_the_data_is_no_part_of_the_grid() -> None:
    moved = expand(grid(data=[DataSource("cub", "cub", Path("/elsewhere"))]))
    assert {cell.id for cell in moved} == {cell.id for cell in expand(grid())}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"losses": ["c9"]},
            r"^fair cub .* c9 gap fold 1 seed 0: loss must be one of c1, .*'c9'",
        ),
        (
            {"poolings": ["gup"]},
            r"^fair cub .* c2 gup fold 1 seed 0: pool must be .* gap, .*'gup'",
        ),
        (
            {"losses": ["c2", "pnca"], "options": {"images_per_class": 4}},
            r"^fair cub .* pnca gap fold 1 seed 0: images_per_class is 4 .* with proxies",
        ),
        (
            {"protocol": "conventional", "losses": ["panchor"]},
            r"^conventional cub .* panchor gap seed 0: images_per_class is 4",
        ),
        (
            {"losses": ["pnca"], "ccp": [True]},
            r"^fair cub .* pnca ccp\+gap fold 1 seed 0: ccp needs a loss out of c1, c2",
        ),
        (
            {"losses": ["pnca"], "center_regs": ["r1"], "options": {"center.momentum": 0.5}},
            r"^fair cub .* pnca gap\+reg:r1 fold 1 seed 0: center.momentum has no effect",
        ),
        ({"losses": ["pnca"], "center_regs": ["r9"]}, r"center_reg must be one of r1, .*'r9'"),
        ({"losses": ["ms"], "xbm": [True]}, r"cross-batch memory \(xbm\) needs .* c1, c2, got ms"),
        (
            {"zero_shot": [True]},
            r"^fair cub .* c2 gap fold 1 seed 0: the zero-shot loss needs the attributes of .*gsp",
        ),
        (
            {"poolings": ["gsp"], "zero_shot": [False], "options": {"zero_shot.weight": 0.2}},
            r"zero_shot.weight is 0.2, but the cell is one without",
        ),
        ({"poolings": ["gap", "gap"]}, r"is the same run as fair cub .* gap fold 1 seed 0"),
        ({"zero_shot": [None, False]}, r"is the same run as"),
        ({"folds": [5]}, r"fold must be one of 1, 2, 3, 4 in the protocol fair, got 5"),
        ({"protocol": "unfair"}, r"protocol must be one of fair, conventional, .*'unfair'"),
        ({"protocol": "conventional", "folds": [1]}, r"left out, there is none"),
        ({"options": {"seed": 3}}, r"seed is set by the grid itself"),
        (
            {"options": {"hardware.devices": 2}},
            r"^fair cub .*: hardware.devices and hardware.nodes must be 1, got 2 and 1",
        ),
        ({"data": [CUB, CUB]}, r"two data sets are called cub"),
        ({"options": {"batch_size": 30}}, r"^fair cub .*: batch_size 30 must be a multiple"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GridError, match=complaint):
        expand(grid(**options))


def test_a_data_set_with_missing_images_is_refused(tmp_path: Path) -> None:
    home = cub(tmp_path)
    missing = sorted((home / "images").rglob("*.jpg"))[0]
    missing.unlink()
    cells = expand(grid(data=[find_data("cub", tmp_path)], seeds=1))
    with pytest.raises(GridError) as error:
        check_cells(cells)
    assert str(error.value).startswith(
        "fair cub tf_efficientnet_lite0 c2 gap fold 1 seed 0 (and 3 more cells of cub): "
    )
    assert f"1 of 8 listed images are missing: {missing}" in str(error.value)


def test_images_that_cannot_be_read_are_found_before_the_first_cell(photos: DataSource) -> None:
    small: dict[str, Any] = {"backbones": ["small_cnn"], "options": {"batch_size": 8}}
    cells = expand(grid(data=[photos], seeds=1, folds=[1], **small))
    assert photos.path is not None
    torn = sorted(photos.path.rglob("*.png"))[3]
    sound = torn.read_bytes()
    torn.write_bytes(sound[:30])
    check_cells(cells)  # as for a plan: nothing is decoded
    cached = [replace(cell, config=replace(cell.config, cache="ram")) for cell in cells]
    for some in (cells, cached):
        with pytest.raises(GridError, match=rf"^fair photos .*cannot read the image {torn}"):
            check_cells(some, decode=["photos"])
    torn.write_bytes(sound)


def test_data_without_a_test_part_is_refused(tmp_path: Path) -> None:
    for name in "abcdefgh":
        for number in range(2):
            image(tmp_path / "birds" / name / f"{number}.png")
    cells = expand(grid(data=[find_data(str(tmp_path / "birds"), tmp_path)], seeds=1))
    assert cells[0].data_set == "birds"
    with pytest.raises(GridError, match="the data has no test part, which the fair protocol"):
        check_cells(cells)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"backbones": ["no_such_net"]},
            r"^fair photos no_such_net c2 gap fold 1 seed 0: .*no_such",
        ),
        ({"options": {"pool_options": {"p": 3}}}, r"c2 gap fold 1 seed 0: .*\['p'\]"),
        ({"options": {"loss_options": {"bend": 3.0}}}, r"c2 gap fold 1 seed 0: .*bend"),
        ({"options": {"batch_size": 400}}, r"c2 gap fold 1 seed 0: .* batch_size 400"),
        (
            {"losses": ["ms"], "options": {"hardware.cuda_step": True}},
            r"ms gap fold 1 seed 0: hardware.cuda_step needs",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(
    photos: DataSource, options: dict[str, Any], complaint: str
) -> None:
    small = {"backbones": ["small_cnn"], "data": [photos], "seeds": 1, "folds": [1]}
    with pytest.raises(GridError, match=complaint):
        check_cells(expand(grid(**{**small, **options})))


def test_a_grid_that_can_be_trained_passes(photos: DataSource) -> None:
    small = {"backbones": ["small_cnn"], "data": [photos], "options": {"batch_size": 8}}
    check_cells(expand(grid(losses=["c2", "pnca"], poolings=["gap", "gsp"], **small)))


def test_data_is_found_by_name_by_path_and_by_both(tmp_path: Path) -> None:
    home = cub(tmp_path)
    assert find_data("cub", tmp_path) == DataSource("cub", "cub", home)
    assert find_data("cub", home) == DataSource("cub", "cub", home)
    assert find_data(f"cub={home}", Path()) == DataSource("cub", "cub", home)
    assert find_data(str(home), Path()) == DataSource("cub", "cub", home)
    assert find_data(f"birds={home}", Path()) == DataSource("birds", "cub", home)
    dotted = tmp_path / "photos v1.2"
    for name in ("a", "b"):
        image(dotted / name / "0.png")
    assert find_data(str(dotted), Path()).name == "photos v1.2"
    inside = cub(tmp_path / "all" / "cub")
    assert find_data("cub", tmp_path / "all").path == inside


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no CUB-200-2011.*give --root, or --data cub=PATH"):
        find_data("cub", tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        find_data("cub", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"data must be one of cub, .* got 'cubs'"):
        find_data("cubs", tmp_path)
    with pytest.raises(ConfigError, match="say cifar-collage=PATH"):
        find_data("cifar-collage", tmp_path)
    with pytest.raises(ConfigError, match=r"NAME, NAME=PATH or a path, got 'cub='"):
        find_data("cub=", tmp_path)


def test_settings_have_the_types_of_their_options() -> None:
    texts = ["stop.max-steps=4", "cache=ram", "hardware.compile=true", "pool_options.p=3"]
    assert parse_settings(texts) == {
        "stop.max_steps": 4,
        "cache": "ram",
        "hardware.compile": True,
        "pool_options": {"p": 3},
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["stop.max_steps"], "must be KEY=VALUE"),
        (["stop.max_step=1"], "names no option.*close ones are stop.max_steps"),
        (["seed=1", "seed=2"], "gives seed twice"),
        (["stop.max_steps=many"], "stop.max_steps"),
        (["cache=disk"], "cache"),
    ],
)
def test_settings_that_are_none_are_refused(texts: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_settings(texts)
