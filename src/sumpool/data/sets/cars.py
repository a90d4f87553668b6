"""Cars196: photographs of cars by make, model and year."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout
from sumpool.data.sets.matlab import read_mat
from sumpool.data.sets.published import Count, Listing, PublishedDataset
from sumpool.data.splits import halves


class Cars196(PublishedDataset):
    """Cars196 [cars]: 16,185 photographs of 196 car models.

    Read from ``cars_annos.mat`` and ``car_ims/``. Splits: "train" (the first 98 classes), "test"
    (the last 98) and "all".
    """

    layout = ArchiveLayout(
        "Cars196", (("cars_annos.mat",),), inside=("cars196", "Cars196", "CARS196", "cars")
    )
    published: ClassVar = {"train": Count(98, 8054), "test": Count(98, 8131)}

    @classmethod
    def read(cls, home: Path) -> Listing:
        """List all images in the order of the annotations."""
        path = home / "cars_annos.mat"
        try:
            content = read_mat(path)
            annotations = content["annotations"]
            paths = [str(it["relative_im_path"]) for it in annotations]
            labels = [int(it["class"]) - 1 for it in annotations]
            class_names = [str(it) for it in content["class_names"]]
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise DataError(
                f"cannot read {path}: wanted annotations with relative_im_path and class, and "
                f"class_names ({type(error).__name__}: {error})"
            ) from error
        count = len(class_names)
        for it, label in zip(paths, labels, strict=True):
            if not 0 <= label < count:
                raise DataError(f"{path}: {it} is of class {label + 1}, classes are 1..{count}")
        return Listing(home, paths, labels, class_names, halves(labels, count))
