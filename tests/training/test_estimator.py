"""Embeddings are a step of scikit-learn's pipelines."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from models.tiny import embedder
from sumpool import EmbeddingTransformer
from sumpool.models import save_embedder
from sumpool.training import ConfigError

#: Few steps of a small network.
OPTIONS = {
    "backbone": "small_cnn",
    "weights": "none",
    "embedding_size": 8,
    "gsp.prototypes": 4,
    "batch_size": 8,
    "images_per_class": 2,
    "optimizer.lr": 3e-3,
    "stop.max_steps": 4,
    "stop.validate_every": 4,
    "hardware.accelerator": "cpu",
    "hardware.workers": 0,
    "resize": 24,
    "crop": 24,
}


def colored(classes: int = 6, each: int = 6) -> tuple[NDArray[np.uint8], NDArray[np.str_]]:
    """Noisy images (N, 24, 24, 3), one color per class, and the names of the classes."""
    draws = np.random.default_rng(0)
    colors = draws.uniform(40, 215, (classes, 3)).repeat(each, 0)
    noise = draws.normal(0, 10, (classes * each, 24, 24, 3))
    pixels = np.clip(colors[:, None, None] + noise, 0, 255).astype(np.uint8)
    return pixels, np.array([f"class {number // each}" for number in range(classes * each)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_embedder(embedder(backbone="small_cnn", crop=24).eval(), path)
    return path


def test_a_model_is_a_step_of_a_pipeline(folder: Path, tmp_path: Path) -> None:
    images, classes = colored()
    pipeline = make_pipeline(EmbeddingTransformer(folder), KNeighborsClassifier(1))
    assert (pipeline.fit(images, classes).predict(images) == classes).all()
    vectors = pipeline[0].transform(images)
    assert (vectors.shape, vectors.dtype) == ((len(images), 8), np.float32)
    files = [str(tmp_path / f"{number}.png") for number in range(3)]
    for file, image in zip(files, images, strict=False):
        Image.fromarray(image).save(file)
    np.testing.assert_allclose(pipeline[0].transform(files), vectors[:3], atol=1e-6)
    np.testing.assert_allclose(pipeline[0].transform(np.array(files)), vectors[:3], atol=1e-6)
    assert list(pipeline[0].get_feature_names_out())[-1] == "embeddingtransformer7"


def test_fit_trains_with_the_options_of_the_command_line() -> None:
    images, classes = colored()
    first = EmbeddingTransformer(options=OPTIONS).fit(images, classes)
    assert first.model_.config.backbone == "small_cnn"
    again = clone(first).fit(list(images), list(classes))
    np.testing.assert_array_equal(again.transform(images), first.transform(images))
    kept = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(kept.transform(images), first.transform(images))


def test_options_may_be_numpy_numbers_paths_and_tuples(folder: Path) -> None:
    images, classes = colored()
    options = {
        **OPTIONS,
        "stop.max_steps": np.int64(1),
        "optimizer.lr": np.float32(1e-3),
        "optimizer.restarts": (np.int64(1),),
        "loss_options": {"margin": np.float32(0.5)},
        "init": folder,
        "gsp.prototypes": 4,
    }
    fitted = EmbeddingTransformer(options=options).fit(images, classes)
    assert fitted.transform(images).shape == (len(images), 8)


def test_a_fold_of_the_classes_can_be_held_out() -> None:
    images, classes = colored()
    options = {**OPTIONS, "loss": "pnca", "images_per_class": 1, "batch_size": 4}
    first, other = (
        EmbeddingTransformer(options={**options, "fold": fold, "folds": 3}).fit(images, classes)
        for fold in (1, 2)
    )
    assert not np.array_equal(first.transform(images), other.transform(images))


def test_training_starts_from_the_model_that_is_named(folder: Path) -> None:
    images, classes = colored()
    options = {**OPTIONS, "optimizer.lr": 1e-12, "gsp.prototypes": 4}
    plain = EmbeddingTransformer(folder).fit(None)
    tuned = EmbeddingTransformer(folder, options=options).fit(images, classes)
    np.testing.assert_allclose(
        tuned.model_.map.weight.detach(), plain.model_.map.weight.detach(), atol=1e-6
    )


def test_what_cannot_be_fitted_is_refused(folder: Path) -> None:
    images, classes = colored(3)
    with pytest.raises(ConfigError, match="y has 3 classes: four are needed"):
        EmbeddingTransformer(options=OPTIONS).fit(images, classes)
    with pytest.raises(ConfigError, match="options must be those of `sumpool train`, got 'depth'"):
        EmbeddingTransformer(options={"depth": 3}).fit(images, classes)
    for options, complaint in (
        ({"data": "photos"}, "options must be without data: the images are those of fit"),
        ({"stop.max_steps": "2"}, r"stop\.max_steps must be .*, got '2'"),
        ({"pool": "gap", "gsp.mu": 0.2}, r"options without effect: gsp\.… with pool gap"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            EmbeddingTransformer(options=options).fit(*colored())
    with pytest.raises(ValueError, match="y must be the classes of the images"):
        EmbeddingTransformer(options=OPTIONS).fit(images)
    with pytest.raises(ValueError, match="y must have a class for each of 18 images, got 12"):
        EmbeddingTransformer(options=OPTIONS).fit(images, np.arange(12) // 3)
    for y, complaint in (
        (np.array([1, 2, 3, np.nan] * 4), "y must be a class for each image, got nan at 3"),
        (["a", "b", float("nan"), "d"] * 4, "y must be a class for each image, got nan at 2"),
        (np.array([[1]] * 16), r"y must have one dimension, got shape \(16, 1\)"),
        (np.array([1, "a", 2, "b"] * 4, object), "y must be all numbers or all strings"),
    ):
        with pytest.raises((ValueError, TypeError), match=complaint):
            EmbeddingTransformer(options=OPTIONS).fit(images, y)
    with pytest.raises(TypeError, match="options must be a mapping, got list"):
        EmbeddingTransformer(options=[("pool", "gap")]).fit(images, classes)
    with pytest.raises(NotFittedError):
        EmbeddingTransformer(folder).transform(images)


def test_missing_classes_of_pandas_are_refused() -> None:
    classes = pytest.importorskip("pandas").Series([1, 2, 3, None] * 4, dtype="Int64")
    with pytest.raises(TypeError, match="y must be all numbers or all strings, none missing"):
        EmbeddingTransformer(options=OPTIONS).fit(colored()[0], classes)
