"""Split of the data into images for training, model selection and evaluation."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sumpool.data import (
    DATASETS,
    DataError,
    ImageDataset,
    check_images,
    class_fold,
    dataset_splits,
    detect_format,
    open_dataset,
    split_classes,
)
from sumpool.data.base import Broken
from sumpool.evaluation.evaluate import measurable_ks
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, TrainConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TestSet:
    """Images for the evaluation, as queries and gallery.

    Attributes:
        query: Images to search for.
        gallery: Images to search among; None searches among the queries themselves.
    """

    query: ImageDataset
    gallery: ImageDataset | None = None


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set.

    Splits drawn here have no classes in common; those of the data set may have. With selection test
    the second part is the third.

    Attributes:
        name: Format of the data set.
        train: Images to train on.
        validation: Images that select the model; with selection test, the queries of the test set.
        test: Images to evaluate it on; None if the data set has no such part, or with ``test``
            false.
        broken: Images left out because they cannot be read, and why.
    """

    name: str
    train: ImageDataset
    validation: ImageDataset
    test: TestSet | None
    broken: tuple[Broken, ...] = ()


def open_splits(config: TrainConfig, *, check: bool = True, progress: bool = True) -> Splits:
    """Open the data of ``config``, check its images and split it by class.

    The test part is that of the data set. Validation uses its validation part or, with ``fold`` or
    without such a part, classes of the training part: those of the fold, or a share drawn with the
    seed. With selection test it uses the test queries.

    Args:
        config: The options.
        check: Whether to decode every image once, except those that a cache decodes anyway.
        progress: Whether to show a progress bar.

    Raises:
        DataError: If the data cannot be used; names the file.
        BrokenImageError: If images cannot be read, unless ``skip_broken`` leaves them out.
        ConfigError: If the options do not fit the data, such as too few classes for the split.
    """
    if config.data is None and config.format != "glyphs":
        raise ConfigError("data is missing: name a folder or CSV file with --data")
    if config.format not in ("auto", *DATASETS):
        raise ConfigError(f"format must be auto or one of {', '.join(DATASETS)}: {config.format!r}")
    if config.data is not None and config.format == "glyphs":
        raise ConfigError(f"data must be left out with format glyphs, got {config.data!r}")
    name = config.format
    if name == "auto":
        assert config.data is not None
        name = detect_format(config.data)
    parts = dataset_splits(config.data, name)
    named = [split for split in parts if split != "all"]
    if named and "train" not in named:
        raise ConfigError(
            f"{config.data} has no split train: it has {', '.join(named)}; wanted train and, "
            "optionally, validation, test, or query and gallery"
        )
    learned = "train" if named else "all"
    own = next((split for split in ("validation", "val") if split in parts), None)
    measured = ("query", "gallery") if "query" in parts else ("test",)
    tests = [split for split in measured if split in parts]
    unused = [split for split in named if split not in (learned, own, *tests)]
    if unused and tests == ["query"] and config.test:
        raise ConfigError(
            f"{config.data} has no split gallery for its queries: it has {', '.join(named)}"
        )
    for split in unused:
        logger.warning("%s: the split %s is not used", config.data, split)
    if own and (config.selection == "test" or config.fold is not None):
        logger.info("the part %s of the data is not used", own)
        own = None
    if not config.test:
        tests = []
    if config.selection == "test" and not tests:
        raise ConfigError(
            f"selection is test, but {config.data} has no test part: its parts are "
            f"{', '.join(parts)}"
        )
    used = [learned, *([own] if own else []), *tests]
    more = {"allow_outside": config.allow_outside} if name == "csv" else {}
    opened = {split: open_dataset(config.data, name, split, **more) for split in used}
    broken: tuple[Broken, ...] = ()
    if check:
        # Images that a cache decodes before the first step are checked there.
        everything = config.freeze_backbone or config.selection == "test"
        cached = used if everything else [learned, own]
        caches = config.freeze_backbone or config.cache != "none"
        skipped = cached if caches and not config.skip_broken else []
        checked = {split: part for split, part in opened.items() if split not in skipped}
        checked, broken = check_images(checked, skip_broken=config.skip_broken, progress=progress)
        opened |= checked
    test = TestSet(*(opened[split] for split in tests)) if tests else None
    if test is not None and config.selection != "test":
        _check_test(config, test)
    train = opened[learned]
    if config.selection == "test":
        assert test is not None
        validation = test.query
    elif own:
        validation = opened[own]
    else:
        train, validation = hold_out(config, train)
    return Splits(name, train, validation, test, broken)


def _check_test(config: TrainConfig, test: TestSet) -> None:
    # No network should be trained before this is noticed.
    try:
        measurable_ks(test.query, test.gallery)
    except DataError as error:
        raise ConfigError(
            f"{config.data}, test part: {error}; leave it out with --test false"
        ) from error


def hold_out(config: TrainConfig, dataset: ImageDataset) -> tuple[ImageDataset, ImageDataset]:
    """Split ``dataset`` by class into the parts to train and to validate on.

    Raises:
        ConfigError: If there are too few classes.
    """
    classes = int(dataset.labels.unique().numel())
    if config.fold is not None:
        if classes < config.folds:
            found = counted(classes, "class", "classes")
            raise ConfigError(f"folds is {config.folds}, but there are only {found}")
        learn, keep = class_fold(dataset.labels, config.fold - 1, config.folds)
    else:
        if classes < 4:
            raise ConfigError(
                f"{config.data} has {counted(classes, 'class', 'classes')}: four are needed, two "
                "to learn from and two to validate on"
            )
        learn, keep = split_classes(dataset.labels, config.validation, config.seed)
    return dataset.subset(learn), dataset.subset(keep)
