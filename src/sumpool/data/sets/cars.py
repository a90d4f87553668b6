"""Cars196: cars by make, model and year."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.published import Count, Listing, PublishedDataset, halves


class Cars196(PublishedDataset):
    """Cars196 [cars]: 16,185 photographs of 196 models of cars.

    Read from ``cars_annos.mat`` and ``car_ims/``. Splits: "train", the first 98 classes, "test",
    the last 98, and "all".
    """

    layout = ArchiveLayout(
        "Cars196", (("cars_annos.mat",),), inside=("cars196", "Cars196", "CARS196", "cars")
    )
    published: ClassVar = {"train": Count(98, 8054), "test": Count(98, 8131)}

    @classmethod
    def read(cls, home: Path) -> Listing:
        """All images, in the order of the annotations."""
        import scipy.io  # takes longer to import than any other data set to open

        path = home / "cars_annos.mat"
        try:
            # Reads numbers, text and structures; code in a .mat file stays data.
            content = scipy.io.loadmat(path, variable_names=["annotations", "class_names"])
            annotations, names = content["annotations"].ravel(), content["class_names"].ravel()
            paths = [str(np.asarray(it).item()) for it in annotations["relative_im_path"]]
            labels = [int(np.asarray(it).item()) - 1 for it in annotations["class"]]
            class_names = [str(np.asarray(it).item()) for it in names]
        except Exception as error:  # damaged bytes make the reader raise all sorts
            raise DataError(
                f"cannot read {path}: wanted annotations with relative_im_path and class, and "
                f"class_names ({type(error).__name__}: {error})"
            ) from error
        count = len(class_names)
        for it, label in zip(paths, labels, strict=True):
            if not 0 <= label < count:
                raise DataError(f"{path}: {it} is of class {label + 1}, classes are 1..{count}")
        return Listing(home, paths, labels, class_names, halves(labels, count))
