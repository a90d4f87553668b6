"""Embedders as transformers of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sumpool.data import ImageDataset
from sumpool.models import Embedder, load
from sumpool.models.encoding import as_image, image_list
from sumpool.models.pretrained import is_pretrained
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, TrainConfig, flat, option_hints
from sumpool.training.settings import check_effects
from sumpool.training.splits import Splits, hold_out
from sumpool.training.values.recipes import with_recipe
from sumpool.training.values.types import describe_type, fits
from sumpool.training.without_folder import train_in_memory

# Options of `sumpool train` about data in files and their test part.
_OF_FOLDERS = ("data", "format", "out", "selection", "test", "skip_broken", "allow_outside")


class EmbeddingTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Scikit-learn transformer from images to embeddings.

    Images are paths, PIL images or uint8 arrays (H, W) or (H, W, 3), as in
    :meth:`Embedder.encode`; an array (N, H, W, 3) is N of them.

    Args:
        model: Model to embed with, or to start training from: the folder of a run or of a saved
            model, "hf://organization/name", or "pretrained", the packaged network.
        options: None embeds with ``model`` as it is, and ``fit`` only loads it. A dictionary trains
            it on the images passed to ``fit``, with these options of `sumpool train` by dotted
            name, such as ``{"pool": "gsp", "stop.max_steps": 200}``, and its recipe for the rest
            (``"recipe"``: best, papers or auto). Some classes are held out for validation, so at
            least four are needed.
        batch_size: Images per forward pass of ``transform``.
        device: Device of the model after ``fit``.
        progress: Whether ``transform`` shows a progress bar.

    Attributes:
        model_: The embedder.

    Example:
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> images = np.zeros((4, 48, 48, 3), np.uint8)
        >>> images[2:] = 255
        >>> pipeline = make_pipeline(
        ...     EmbeddingTransformer("runs/photos"), KNeighborsClassifier(1)
        ... )  # doctest: +SKIP
        >>> pipeline.fit(images, [0, 0, 1, 1]).predict(images)  # doctest: +SKIP
        array([0, 0, 1, 1])
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "pretrained",
        *,
        options: Mapping[str, Any] | None = None,
        batch_size: int = 32,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.model = model
        self.options = options
        self.batch_size = batch_size
        self.device = device
        self.progress = progress

    def fit(self, X: Any, y: ArrayLike | None = None) -> EmbeddingTransformer:
        """Load the model and, with ``options``, train it.

        Args:
            X: The images; ignored without ``options``.
            y: Their classes, as numbers or strings; required for training.

        Raises:
            ConfigError: If ``options`` has an unknown name, or there are too few classes.
            ModelError: If the model cannot be loaded.
        """
        trained = self.options is not None
        self.model_: Embedder = self._train(X, y) if trained else load(os.fspath(self.model))
        self.model_.to(self.device)
        self._n_features_out = self.model_.config.embedding_size
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the embeddings (N, D) of the images ``X``."""
        check_is_fitted(self)
        vectors = self.model_.encode(X, batch_size=self.batch_size, progress=self.progress)
        return np.asarray(vectors.float().cpu())

    def _train(self, X: Any, y: ArrayLike | None) -> Embedder:
        if y is None:
            raise ValueError("y must be the classes of the images to train on, got None")
        if not isinstance(self.options, Mapping):
            raise TypeError(f"options must be a mapping, got {type(self.options).__name__}")
        options = _checked_options({"recipe": "best", **self.options})
        if not is_pretrained(os.fspath(self.model)):
            options.setdefault("init", os.fspath(self.model))
        config = with_recipe(options["recipe"], options)
        check_effects(config)
        names, labels = _classes(y)
        if len(names) < 4:
            found = counted(len(names), "class", "classes")
            raise ConfigError(f"y has {found}: four are needed, two to learn from, two to validate")
        images = _Pictures(image_list(X), labels.tolist(), [str(name) for name in names])
        splits = Splits("default", *hold_out(config, images), None)
        return train_in_memory(config, splits=splits).model


def _classes(y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sorted classes in ``y`` and the number of each image's class."""
    values = np.asarray(y)
    if values.ndim != 1:
        raise ValueError(f"y must have one dimension, got shape {values.shape}")
    try:
        for place, value in enumerate(np.asarray(y, object)):  # where NaN is not yet a string
            if value is None or value != value:
                raise ValueError(f"y must be a class for each image, got {value} at {place}")
        return np.unique(values, return_inverse=True)
    except TypeError as error:
        raise TypeError("y must be all numbers or all strings, none missing") from error


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    hints, checked = option_hints(), {}
    for name, given in options.items():
        value = _plain(given)
        if name not in flat(TrainConfig()):
            raise ConfigError(f"options must be those of `sumpool train`, got {name!r}")
        if name in _OF_FOLDERS:
            raise ConfigError(f"options must be without {name}: the images are those of fit")
        if not fits(value, hints[name]):
            raise ConfigError(f"{name} must be {describe_type(hints[name])}, got {value!r:.80}")
        checked[name] = value
    return checked


def _plain(value: Any) -> Any:
    """Return NumPy numbers, arrays, tuples and paths as what a file of options has for them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    if isinstance(value, Mapping):
        return {key: _plain(it) for key, it in value.items()}
    return value


class _Pictures(ImageDataset):
    """Data set of the images passed to ``fit``."""

    def __init__(
        self, sources: Sequence[Any], labels: Sequence[int], class_names: Sequence[str]
    ) -> None:
        super().__init__(labels, class_names)
        if len(sources) != len(self):
            given = f"{len(sources)} images, got {len(self)}"
            raise ValueError(f"y must have a class for each of {given}")
        self.sources = sources

    def load(self, index: int) -> Image.Image:
        return as_image(self.sources[index])

    def item_name(self, index: int) -> str:
        source = self.sources[index]
        return os.fspath(source) if isinstance(source, str | os.PathLike) else f"image {index}"
