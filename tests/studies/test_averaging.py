"""The study of average pooling: its analysis on planted features, and the study end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sumpool.data import write_cifar_stand_in
from sumpool.models import ModelError
from sumpool.models.backbones import build_backbone
from sumpool.studies.averaging import experiment as averaging
from sumpool.studies.averaging.analysis import analyze, measures, typical_images
from sumpool.studies.averaging.setup import cell_config, choose_settings, open_parts
from sumpool.system.rows import Row, read_arrays
from sumpool.training import ConfigError


def planted(background: float) -> tuple[Tensor, Tensor, Tensor]:
    """Three classes in directions of their own, with a share of background that all have.

    Features (30, 20, 2), equal weights (30, 20), labels (30,).
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 3
    angles = 2 * torch.pi * torch.arange(3) / 3
    centers = 3 * torch.stack([angles.cos(), angles.sin()], 1)
    features = centers[labels].unsqueeze(1) + 0.6 * torch.rand(30, 20, 2, generator=generator)
    shared = round(20 * background)
    features[:, :shared] = 0.2 * torch.rand(30, shared, 2, generator=generator)
    return features, torch.full((30, 20), 1 / 20), labels


def test_an_analysis_equals_loops() -> None:
    features, _, labels = planted(0.5)
    weights = torch.rand(30, 20, generator=torch.Generator().manual_seed(1))
    weights /= weights.sum(-1, keepdim=True)
    found = analyze(features, weights, labels, 12)
    assert found.scale == pytest.approx(float(features.norm(dim=-1).max()))
    assert float(found.features.norm(dim=-1).max()) == pytest.approx(1)
    assert len(found.prototypes.unique(dim=0)) == 12
    shares = torch.zeros(3, 12, dtype=torch.float64)
    largest = 0.0
    for image in range(30):
        pooled, combined = torch.zeros(2), torch.zeros(2)
        for feature, weight in zip(found.features[image], weights[image], strict=True):
            away = [float((feature - it).norm()) for it in found.prototypes]
            place = away.index(min(away))
            largest = max(largest, min(away))
            pooled = pooled + weight * feature
            combined = combined + weight * found.prototypes[place]
            shares[labels[image], place] += float(weight) / 10
        torch.testing.assert_close(found.pooled[image], pooled, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.combined[image], combined, rtol=0, atol=1e-6)
        assert float(found.found.error[image]) == pytest.approx(
            float((pooled - combined).norm()), abs=1e-6
        )
    assert found.delta == pytest.approx(largest)
    torch.testing.assert_close(found.shares, shares, rtol=0, atol=1e-6)


def test_prototypes_are_among_the_features() -> None:
    found = analyze(*planted(0.5), count=9)
    distances = torch.cdist(found.prototypes, found.features.flatten(0, 1))
    assert (distances.amin(1) < 1e-7).all()


def test_the_bound_holds_for_every_image_and_more_prototypes_cover_better() -> None:
    features, weights, labels = planted(0.5)
    radii = []
    for count in (1, 3, 10, 30, 100):
        found = analyze(features, weights, labels, count)
        assert found.bound_holds().all()
        assert (found.found.error <= found.delta).all()
        radii.append(found.delta)
    assert radii == sorted(radii, reverse=True)


def test_with_all_features_as_prototypes_there_is_no_error() -> None:
    found = analyze(*planted(0.5), count=10**6)
    assert found.delta == 0.0
    assert float(found.found.error.max()) == 0.0
    torch.testing.assert_close(found.pooled, found.combined)
    assert found.bound_holds().all()


def test_classes_that_share_a_background_have_hulls_that_overlap() -> None:
    apart = measures(analyze(*planted(0.0), count=24), 0.01)
    assert apart["overlap_mean"] == apart["overlapping_pairs"] == apart["shared_prototypes"] == 0
    shared = measures(analyze(*planted(0.5), count=24), 0.01)
    assert shared["overlap_mean"] > 0
    assert shared["shared_prototypes"] > 0
    # What is averaged stays apart all the same.
    assert shared["embedding_overlapping_pairs"] == shared["inside_others"] == 0
    assert shared["bound_holds"] == apart["bound_holds"] == 1


def test_a_single_far_feature_makes_an_active_but_no_main_prototype() -> None:
    features, weights, labels = planted(0.0)
    features[0, 0] = torch.tensor([-5.0, 4.9])  # of class 0, one of 200, beyond class 1
    found = measures(analyze(features, weights, labels, 24), 0.01)
    before = measures(analyze(*planted(0.0), count=24), 0.01)
    assert before["overlap_mean"] == 0
    assert found["overlap_mean"] > 0
    assert found["main_overlap_mean"] == 0


def test_typical_images_have_the_median_error_of_their_class() -> None:
    found = analyze(*planted(0.5), count=12)
    chosen = typical_images(found, 2)
    assert found.labels[chosen].tolist() == [0, 2]
    for image in chosen:
        own = found.found.error[found.labels == found.labels[image]]
        assert float(found.found.error[image]) == float(own.median())
    assert len(typical_images(found, 9)) == 3


def test_settings_follow_the_data(tmp_path: Path) -> None:
    assert choose_settings(None, False, None).data == "glyphs"
    with pytest.raises(ConfigError, match="weights must be left out on glyphs, got a file"):
        averaging.run(tmp_path / "out", weights=Path("a file"))
    (tmp_path / "images" / "one").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cifar10, cifar100, found folder in"):
        averaging.run(tmp_path / "out", data=tmp_path / "images")
    data = write_cifar_stand_in(tmp_path / "cifar", train_per_class=1, test_per_class=1)
    weights = tmp_path / "backbone.safetensors"
    with pytest.raises(ModelError, match=r"backbone\.safetensors: there is no such file"):
        choose_settings(data, False, weights)
    state = build_backbone("resnet20").network.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, weights)
    found = choose_settings(data, False, weights)
    assert (found.data, found.backbone, found.drawn) == ("CIFAR-100", "resnet20", None)
    assert (found.weights.split()[0], found.lr) == ("backbone.safetensors", 3e-4)
    assert choose_settings(data, False, None).lr == 1e-3
    config = cell_config(found, {"pool": "gap", "loss": "c2", "seed": 1}, "some/file")
    assert (config.weights, config.normalize, config.embedding_size) == ("some/file", "ball", 2)


def test_drawn_parts_share_their_classes_and_no_image() -> None:
    settings = choose_settings(None, True, None)
    parts = open_parts(settings, None, seed=1)
    assert parts.test is not None
    images: set[bytes] = set()
    for part, count in ((parts.train, 8), (parts.validation, 4), (parts.test.query, 8)):
        assert len(part) == 10 * count
        assert (part.labels.unique(return_counts=True)[1] == count).all()
        assert torch.equal(part.labels.unique(), parts.train.labels.unique())
        images |= {part.load(it).tobytes() for it in range(len(part))}
    assert len(images) == 200
    again = open_parts(settings, None, seed=1).train.load(0).tobytes()
    assert again == parts.train.load(0).tobytes()
    assert again != open_parts(settings, None, seed=2).train.load(0).tobytes()


def test_cells_differ_in_the_pooling_alone() -> None:
    settings = choose_settings(None, True, None)
    gap, gsp = (
        cell_config(settings, {"pool": pool, "loss": "c2", "seed": 0}, None)
        for pool in ("gap", "gsp")
    )
    assert {**vars(gap), "pool": None, "gsp": None} == {**vars(gsp), "pool": None, "gsp": None}
    assert (gsp.gsp.prototypes, gsp.gsp.mu, gsp.gsp.eps) == (16, 0.5, 5.0)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    folder = tmp_path_factory.mktemp("averaging")
    return folder, averaging.run(folder, quick=True, progress=False)


@pytest.mark.process
def test_quick_run_stores_what_tables_and_figures_need(quick: tuple[Path, list[Row]]) -> None:
    folder, rows = quick
    assert [dict(row.cell) for row in rows] == [
        {"pool": pool, "loss": "c2", "seed": 0} for pool in ("gap", "gsp")
    ]
    for row in rows:
        found = row.metrics
        assert found["bound_holds"] == 1
        assert 0 < found["error_mean"] <= found["error_max"] <= found["delta"] < 1
        assert found["squared_error_max"] == pytest.approx(found["error_max"] ** 2)
        assert found["error_mean"] <= found["distance_mean"]
        assert found["main_prototypes_mean"] <= found["active_prototypes_mean"] <= 48
        arrays = read_arrays(folder, row)
        assert arrays["prototypes"].shape == (48, 2)
        assert arrays["pooled"].shape == arrays["combined"].shape == (80, 2)
        np.testing.assert_allclose(arrays["shares"].sum(1), np.ones(10), rtol=1e-5)
        assert len(arrays["features"]) == len(arrays["feature_classes"]) <= 3000
        assert arrays["images"].shape == (3, 48, 48, 3)
        assert arrays["image_features"].shape == (3, 36, 2)
        assert (arrays["image_errors"] <= found["delta"]).all()
        for name, count in (("active", 10), ("main", 10), ("embedding", 10), ("image", 3)):
            assert len(arrays[f"{name}_sizes"]) == count
            assert len(arrays[f"{name}_corners"]) == arrays[f"{name}_sizes"].sum()
        assert (folder / "arrays" / str(row.arrays)).stat().st_size < 100_000
    gap = rows[0].metrics
    assert gap["foreground_weight"] == pytest.approx(0.25)


@pytest.mark.process
def test_stored_cells_are_not_trained_again(
    quick: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = quick

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(averaging, "run_cell", never)
    assert averaging.run(folder, quick=True, progress=False) == rows
