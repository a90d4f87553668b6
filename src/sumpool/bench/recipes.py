"""Recipes: configuration files for `sumpool train`, one for every published setting.

Settings come from the published tables, constants from the catalogs and the protocol.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sumpool.bench.cells import BenchCell
from sumpool.bench.datasets import DataSource
from sumpool.bench.grid import Grid, expand
from sumpool.bench.methods import Method
from sumpool.bench.report.published import PublishedScore, published_scores
from sumpool.bench.settings import parse_settings
from sumpool.pooling import pooling_class
from sumpool.protocols import PROTOCOLS
from sumpool.system.files import refuse_overwriting
from sumpool.training.config import ConfigError, TrainConfig, write_config


@dataclass(frozen=True)
class Recipe:
    """A published setting.

    Attributes:
        protocol: Name of the protocol.
        data_set: Name of the data set.
        loss: Name of the loss.
        method: Label of the method.
        settings: Options that differ from the usual ones, in the syntax of ``--set``.
        sources: The published scores of this setting.
    """

    protocol: str
    data_set: str
    loss: str
    method: str
    settings: tuple[str, ...]
    sources: tuple[PublishedScore, ...]

    @property
    def name(self) -> str:
        """Path of its file, relative to the folder of all recipes.

        Example:
            >>> Recipe("fair", "cub", "c2", "gsp+zs", ("gsp.mu=1",), ()).name
            'fair/cub/c2-gsp+zs-gsp.mu=1.yaml'
        """
        words = "-".join([self.loss, self.method, *self.settings])
        return f"{self.protocol}/{self.data_set}/{words}.yaml"

    def grid(
        self, root: Path, backbone: str = TrainConfig.backbone, weights: str | None = None
    ) -> Grid:
        """Return the grid of all its folds and seeds, on the data in ``root``."""
        method, zero_shot = self._method
        extra = () if weights is None else (f"weights={weights}",)
        return Grid(
            self.protocol,
            [DataSource(self.data_set, self.data_set, root)],
            losses=[self.loss],
            poolings=[method.pool],
            backbones=[backbone],
            zero_shot=[zero_shot],
            ccp=[method.ccp],
            xbm=[method.xbm],
            options=parse_settings((*self.settings, *extra)),
        )

    def command(self, backbone: str = TrainConfig.backbone, weights: str | None = None) -> str:
        """Return the shell command that trains all its folds and seeds.

        Example:
            >>> Recipe("fair", "cub", "c2", "gsp+zs", (), ()).command()
            'sumpool bench fair --data cub --loss c2 --pool gsp'
            >>> Recipe("fair", "sop", "c1", "xbm+gap", (), ()).command()
            'sumpool bench fair --data sop --loss c1 --pool gap --xbm true'
        """
        method, zero_shot = self._method
        words = ["sumpool", "bench", self.protocol, "--data", self.data_set]
        words += ["--loss", self.loss, "--pool", method.pool]
        words += ["--ccp", "true"] if method.ccp else []
        words += ["--xbm", "true"] if method.xbm else []
        words += ["--zero-shot", "false"] if zero_shot is False else []
        words += [] if backbone == TrainConfig.backbone else ["--backbone", backbone]
        settings = [*self.settings, *([] if weights is None else [f"weights={weights}"])]
        return shlex.join([*words, *(["--set", *settings] if settings else [])])

    @property
    def _method(self) -> tuple[Method, bool | None]:
        """Components of its method, and the value of ``--zero-shot``; None to omit the option."""
        method = Method.parse(self.method)
        # Poolings with attributes use the zero-shot loss unless it is turned off.
        off = not method.zero_shot and pooling_class(method.pool).has_attributes
        return method, False if off else None


def recipes() -> list[Recipe]:
    """Return all settings with a published score, in the order of the tables.

    Rows quoted from other papers have their own settings, and no recipe.
    """
    found: dict[tuple[str, str, str, str, str], list[PublishedScore]] = {}
    for score in published_scores():
        if not score.quoted:
            key = (score.protocol, score.data_set, score.loss, score.method, score.settings)
            found.setdefault(key, []).append(score)
    return [Recipe(*key[:4], tuple(key[4].split()), tuple(scores)) for key, scores in found.items()]


def first_cell(
    recipe: Recipe, root: Path, backbone: str = TrainConfig.backbone, weights: str | None = None
) -> BenchCell:
    """Return the cell with the first fold and seed of a recipe's grid.

    Raises:
        sumpool.bench.GridError: If it cannot be trained; names the cell.
    """
    folds = PROTOCOLS[recipe.protocol].models_folds[:1] or None
    return expand(replace(recipe.grid(root, backbone, weights), folds=folds, seeds=1))[0]


def write_recipes(
    folder: Path,
    *,
    root: Path = Path("data"),
    backbone: str | None = None,
    weights: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write each recipe to ``folder``: the complete configuration of its first fold and seed.

    Args:
        folder: Output folder, with a subfolder per protocol and data set.
        root: Folder of the data sets.
        backbone: The network; None for the default of `sumpool train`.
        weights: Its weights, as in `sumpool train`; None for its own.
        overwrite: Whether to replace existing files.

    Returns:
        The paths of the files.

    Raises:
        ConfigError: If the network has no weights of its own and none are given: published
            settings start from ImageNet weights.
        sumpool.bench.GridError: If a setting cannot be trained with this network.
        StoreError: If a file already exists.
    """
    refuse_overwriting((folder / it.name for it in recipes()), overwrite=overwrite)
    network = TrainConfig.backbone if backbone is None else backbone
    paths = []
    for recipe in recipes():
        first = first_cell(recipe, root, network, weights)
        if weights is None and first.config.weights == "none":
            raise ConfigError(
                f"weights must be given for the backbone {network}, which has none of its own: "
                "published settings start from ImageNet weights; a file, or none for random ones"
            )
        path = folder / recipe.name
        head = "".join(f"# {line}\n" for line in _header(recipe, first, network, weights))
        write_config(first.config, path, f"{head}\n")
        paths.append(path)
    return paths


def _header(recipe: Recipe, cell: BenchCell, backbone: str, weights: str | None) -> Iterator[str]:
    note = ", selected on the test set" if cell.config.selection == "test" else ""
    yield f"{recipe.loss}, {recipe.method} on {recipe.data_set}, {recipe.protocol} protocol{note}."
    yield f"Published: {_sources(recipe.sources)}."
    fold = "" if cell.member.fold is None else f"fold {cell.member.fold}, "
    which = f"{fold}seed {cell.member.seed}"
    yield f"This file trains {which}: sumpool train --config {Path(recipe.name).name}"
    yield f"All of them, and the table: {recipe.command(backbone, weights)}"


def _sources(scores: Sequence[PublishedScore]) -> str:
    places = dict.fromkeys(
        f"[{it.source}], table {it.table}, p. {it.page}, {it.row}, {it.backbone}" for it in scores
    )
    return "; ".join(places)
