from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from jsonargparse import ArgumentParser

from sumpool.bench import GridError, expand
from sumpool.bench.recipes import Recipe, first_cell, recipes, write_recipes
from sumpool.cli.bench_options import add_grid_options, grid_of
from sumpool.cli.options import normalize_arguments
from sumpool.cli.train import build_parser
from sumpool.data import DATASETS
from sumpool.protocols import PROTOCOLS
from sumpool.training.config import (
    ConfigError,
    config_from_dict,
    flat,
    flat_switches,
    read_config,
)
from sumpool.training.settings import resolve

SETS = ("cub", "cars196", "sop", "inshop")
DATA = Path("data")


@cache
def by_name() -> dict[str, Recipe]:
    return {recipe.name: recipe for recipe in recipes()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("recipes")
    write_recipes(out, root=DATA)
    return out


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every data set is found, though it is empty."""
    out: Path = tmp_path_factory.mktemp("data")
    for name in SETS:
        layout = DATASETS[name].layout  # type: ignore[attr-defined]
        for first, *_ in layout.wanted:
            path = out / layout.inside[0] / first
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return out


def test_there_is_one_recipe_for_each_published_setting() -> None:
    counts = dict.fromkeys(("fair", "conventional", "tuning"), 0)
    for recipe in recipes():
        counts[recipe.protocol] += 1
    assert counts == {"fair": 4 * 22, "conventional": 4 * 5, "tuning": 2 * 9}
    assert len(by_name()) == len(recipes())


def kinds() -> list[Recipe]:
    """One recipe of each kind: the others differ from it in names alone."""
    found = {(it.protocol, it.method, bool(it.settings)): it for it in recipes()}
    assert len(found) > 12
    return list(found.values())


def test_every_recipe_is_what_the_benchmark_trains_first(folder: Path) -> None:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == set(by_name())
    for recipe in kinds():
        cell = first_cell(recipe, DATA)
        wanted = (recipe.data_set, recipe.loss, recipe.method)
        assert (cell.data_set, cell.loss, cell.method) == wanted
        assert cell.member == PROTOCOLS[recipe.protocol].members()[0]
        config = read_config(folder / recipe.name)
        assert config == cell.config
        # Nothing is left for `sumpool train` to fill in, so that it trains just this.
        assert resolve(config, recipe.data_set) == config


@pytest.mark.parametrize(
    "name",
    [
        "fair/cub/c2-gsp+zs.yaml",
        "fair/cub/c2-gsp+zs-gsp.mu=1.yaml",
        "conventional/cars196/c1-xbm+gmp+gsp+zs.yaml",
    ],
)
def test_the_command_train_reads_a_recipe(folder: Path, name: str) -> None:
    values = build_parser().parse_args(["--config", str(folder / name)]).as_dict()
    for other in ("config", "resume", "__path__"):
        values.pop(other, None)
    assert config_from_dict(values) == read_config(folder / name)


def test_the_command_in_the_first_lines_means_the_same_grid(folder: Path, root: Path) -> None:
    parser = ArgumentParser(exit_on_error=False)
    add_grid_options(parser)
    for recipe in kinds():
        name = recipe.name
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        [command] = [line.split(": ", 1)[1] for line in lines if "All of them" in line]
        verb, action, protocol, *arguments = normalize_arguments(
            shlex.split(command), flat_switches()
        )
        assert (verb, action) == ("sumpool", "bench")
        typed = grid_of(protocol, parser.parse_args([*arguments, "--root", str(root)]))
        assert [source.name for source in typed.data] == [recipe.data_set]
        ours = vars(recipe.grid(DATA))
        for option, value in vars(typed).items():
            if option != "data":
                assert _plain(value) == _plain(ours[option])


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name", ["fair/cub/c2-gsp+zs.yaml", "conventional/sop/ms-ccp+gap+gmp.yaml"]
)
def test_the_recipe_is_one_of_the_cells_of_its_grid(folder: Path, name: str) -> None:
    recipe = by_name()[name]
    cells = expand(recipe.grid(DATA))
    assert len(cells) == {"fair": 12, "conventional": 3}[recipe.protocol]
    assert cells[0].id == first_cell(recipe, DATA).id
    assert cells[0].config == read_config(folder / name)


def test_the_first_lines_name_table_page_and_row(folder: Path) -> None:
    text = (folder / "fair/cub/c2-gap.yaml").read_text(encoding="utf-8")
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert head == [
        "# c2, gap on cub, fair protocol.",
        "# Published: [thesis], table 5.1, p. 85, C2, bn_inception; "
        "[thesis], table 5.3, p. 88, C2, bn_inception; "
        "[thesis], table 3.1, p. 42, C2, bn_inception.",
        "# This file trains fold 1, seed 0: sumpool train --config c2-gap.yaml",
        "# All of them, and the table: sumpool bench fair --data cub --loss c2 --pool gap",
    ]
    assert text.splitlines().index("data: data") == len(head) + 1


def test_conventional_recipes_say_that_they_select_on_the_test_set(folder: Path) -> None:
    files = list((folder / "conventional").rglob("*.yaml"))
    assert len(files) == 20
    for path in files:
        assert (
            "conventional protocol, selected on the test set." in path.read_text().splitlines()[0]
        )
        config = read_config(path)
        assert (config.selection, config.embedding_size) == ("test", 512)
        assert config.pool in ("gap+gmp", "gmp+gsp")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("fair/cub/c2-gap.yaml", {"pool": "gap", "zero_shot.weight": 0.0, "ccp.enabled": False}),
        ("fair/cub/c2-gsp.yaml", {"pool": "gsp", "zero_shot.weight": 0.0, "gsp.eps": 5.0}),
        ("fair/sop/pnca-gsp+zs.yaml", {"zero_shot.weight": 0.1, "gsp.eps": 0.5,
                                       "gsp.prototypes": 128, "images_per_class": 1}),
        ("fair/sop/panchor-gap.yaml", {"optimizer.lr": 5e-6, "stop.validate_every": 1000,
                                       "stop.patience": 10}),
        ("fair/cub/c2-gsp+zs-gsp.mu=1.yaml", {"gsp.mu": 1.0, "zero_shot.weight": 0.1}),
        ("fair/inshop/ms-ccp+gap.yaml", {"ccp.enabled": True, "ccp.proxies": 4, "ccp.candidates": 7,
                                         "stop.patience": 60, "normalize": "ball"}),
        ("fair/cub/c2-xbm+gap.yaml", {"loss": "xbm-c2"}),
        ("fair/cars196/c1-xbm+gsp+zs.yaml", {"loss": "xbm", "gsp.mu": 0.3, "batch_size": 32}),
        ("conventional/cub/c2-ccp+gap+gmp.yaml", {"optimizer.lr": 1e-5, "batch_size": 128,
                                                  "optimizer.plateau_patience": 4}),
        ("conventional/sop/c1-xbm+gmp+gsp+zs.yaml", {"optimizer.lr": 1e-4, "zero_shot.weight": 0.1,
                                                     "stop.monitor": "precision_at_1"}),
        ("tuning/cub/c2-gsp+zs-gsp.prototypes=16-gsp.eps=20-zero_shot.weight=0.5.yaml",
         {"gsp.prototypes": 16, "gsp.mu": 0.3, "gsp.eps": 20.0, "zero_shot.weight": 0.5}),
    ],
)  # fmt: skip
def test_recipes_have_the_published_constants(
    folder: Path, name: str, wanted: dict[str, object]
) -> None:
    values = flat(read_config(folder / name))
    assert {key: values[key] for key in wanted} == wanted


def test_every_set_option_makes_another_cell() -> None:
    # So published settings are spelled as the notes of our scores spell them.
    one_of_each = {it.settings: it for it in recipes()}
    assert len(one_of_each) > 10
    for recipe in one_of_each.values():
        own = first_cell(recipe, DATA).id
        for left_out in recipe.settings:
            fewer = tuple(it for it in recipe.settings if it != left_out)
            assert first_cell(replace(recipe, settings=fewer), DATA).id != own


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """Recipes that are all there are."""
    found = [by_name()[name] for name in ("fair/cub/c2-gap.yaml", "fair/cub/c2-gsp+zs.yaml")]
    monkeypatch.setattr("sumpool.bench.recipes.recipes", lambda: found)
    return found


def test_network_and_weights_can_be_chosen(few: list[Recipe], tmp_path: Path) -> None:
    paths = write_recipes(tmp_path, root=DATA, backbone="bn_inception", weights="w.pth")
    assert paths == [tmp_path / recipe.name for recipe in few]
    config = read_config(tmp_path / "fair/cub/c2-gap.yaml")
    assert (config.backbone, config.weights) == ("bn_inception", "w.pth")
    text = (tmp_path / "fair/cub/c2-gap.yaml").read_text(encoding="utf-8")
    assert "--pool gap --backbone bn_inception --set weights=w.pth\n" in text


def test_a_network_without_weights_of_its_own_needs_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="weights must be given for the backbone bn_inception"):
        write_recipes(tmp_path, backbone="bn_inception")
    assert not list(tmp_path.rglob("*.yaml"))
    random = first_cell(by_name()["fair/cub/c2-gap.yaml"], DATA, "bn_inception", "none")
    assert random.config.weights == "none"


def test_writing_again_gives_the_same_bytes(
    few: list[Recipe], folder: Path, tmp_path: Path
) -> None:
    for path in write_recipes(tmp_path, root=DATA):
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == len(few)


def test_a_setting_that_contradicts_itself_is_refused_by_name() -> None:
    wrong = Recipe("fair", "cub", "pnca", "ccp+gap", (), ())
    with pytest.raises(GridError, match=r"fair cub .* pnca ccp\+gap.*ccp needs a loss out of"):
        first_cell(wrong, DATA)
