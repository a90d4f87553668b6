"""Proxies in the plane: the data, the quick run, and what is stored for its figures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from data import miniatures
from sumpool.data import open_dataset
from sumpool.studies.ccp_plane import experiment as ccp_plane
from sumpool.studies.ccp_plane import section as ccp_plane_section
from sumpool.studies.ccp_plane import setup as ccp_plane_data
from sumpool.studies.ccp_plane.setup import choose_settings, digits, open_parts
from sumpool.studies.ccp_plane.watch import cell_config
from sumpool.system.rows import Row, read_arrays
from sumpool.training import ConfigError


def test_parts_have_all_classes_and_share_no_image() -> None:
    settings = choose_settings(None, quick=False)
    parts = open_parts(settings, None, seed=1)
    assert parts.test is not None
    found = [parts.train, parts.validation, parts.test.query]
    sizes = [len(part) for part in found]
    assert sum(sizes) == len(digits()) == 1797
    assert abs(sizes[1] - 0.2 * 1797) < 10
    assert abs(sizes[2] - 0.2 * 1797) < 10
    indices = torch.cat([part.indices for part in found])  # type: ignore[attr-defined]
    assert len(indices.unique()) == 1797
    for part in found:
        assert len(part.labels.unique()) == 10
    other = open_parts(settings, None, seed=2).train.indices  # type: ignore[attr-defined]
    assert not torch.equal(other, parts.train.indices)  # type: ignore[attr-defined]


def test_digits_are_grey_images_over_the_whole_scale() -> None:
    found = digits()
    assert found.pixels.shape == (1797, 8, 8)
    assert (found.pixels.min(), found.pixels.max()) == (0, 255)
    assert found.load(0).mode == "RGB"


def test_methods_differ_in_proxies_and_the_number_of_problems_alone() -> None:
    settings = choose_settings(None, quick=False)
    base, alone, alternating = (cell_config(settings, method, 0) for method in ccp_plane.METHODS)
    assert not base.ccp.enabled
    assert {**vars(base), "ccp": None} == {**vars(alone), "ccp": None}
    assert (alone.ccp.problems, alternating.ccp.problems) == (1, None)
    assert (alone.ccp.proxies, alone.ccp.candidates, alone.embedding_size) == (4, 16, 2)
    assert {**vars(alone), "ccp": None} == {**vars(alternating), "ccp": None}


def test_data_in_the_format_of_mnist_is_taken_and_other_data_refused(tmp_path: Path) -> None:
    (tmp_path / "images" / "one").mkdir(parents=True)
    with pytest.raises(ConfigError, match="mnist, fashion-mnist, found folder in"):
        ccp_plane.run(tmp_path, data=tmp_path / "images")


def test_mnist_has_its_test_images_and_validation_from_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = miniatures.mnist(tmp_path, labels=[*miniatures.MNIST_LABELS, *range(10), *range(10)])
    settings = choose_settings(root, quick=False)
    assert (settings.data, settings.format, settings.backbone) == ("MNIST", "mnist", "resnetv2_20")
    monkeypatch.setattr(ccp_plane_data, "open_dataset", partial(open_dataset, check_counts=False))
    parts = open_parts(replace(settings, held_out=0.4, most=(2, 1, 1)), root, seed=0)
    assert parts.test is not None
    assert parts.train.labels.bincount().max() == 2
    assert parts.validation.labels.bincount().tolist() == [1] * 10
    assert parts.test.query.labels.bincount().max() == 1
    train, kept = (part.indices for part in (parts.train, parts.validation))  # type: ignore[attr-defined]
    assert not set(train.tolist()) & set(kept.tolist())


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    folder = tmp_path_factory.mktemp("plane")
    return folder, ccp_plane.run(folder, quick=True, progress=False)


@pytest.mark.process
def test_quick_run_stores_what_tables_and_figures_need(quick: tuple[Path, list[Row]]) -> None:
    folder, rows = quick
    base, *rows = rows
    assert base.cell["method"] == "base"
    assert "problems" not in base.metrics
    assert [row.cell["method"] for row in rows] == ["one problem", "alternating"]
    for row in rows:
        arrays = read_arrays(folder, row)
        count = int(row.metrics["problems"])
        assert count >= 1
        shown = arrays["shown"]
        assert shown[-1] == count
        assert arrays["embeddings"].shape == (len(shown), 200, 2)
        assert (np.linalg.norm(arrays["embeddings"], axis=-1) <= 1 + 1e-5).all()
        assert arrays["converged"].shape == arrays["next"].shape == (len(shown), 10, 4, 2)
        assert np.isnan(arrays["next"][-1]).all()
        assert np.isfinite(arrays["next"][:-1]).all()
        assert row.metrics["spread_last"] == row.metrics[f"spread_{count}"]
    assert rows[0].metrics["problems"] == 1
    section = ccp_plane_section.section(folder, [base, *rows])
    assert len(section.pictures) == 2


@pytest.mark.process
def test_stored_cells_are_not_trained_again(
    quick: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = quick

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(ccp_plane, "run_cell", never)
    assert ccp_plane.run(folder, quick=True, progress=False) == rows
