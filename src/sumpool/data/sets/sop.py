"""Stanford Online Products: photographs of products sold on eBay."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sumpool.data.sets.archive import ArchiveLayout, read_rows
from sumpool.data.sets.published import Count, Listing, PublishedDataset

_LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


class StanfordOnlineProducts(PublishedDataset):
    """Stanford Online Products [lifted]: 120,053 photographs of 22,634 products.

    Read from ``Stanford_Online_Products/``: ``Ebay_train.txt``, ``Ebay_test.txt`` and the folders
    they list. Splits: "train" (11,318 products), "test" (the other 11,316) and "all". Classes are
    named by category and number, such as "bicycle 1".
    """

    layout = ArchiveLayout(
        "Stanford Online Products",
        (("Ebay_train.txt",), ("Ebay_test.txt",)),
        inside=("Stanford_Online_Products",),
    )
    published: ClassVar = {"train": Count(11318, 59551), "test": Count(11316, 60502)}

    @classmethod
    def read(cls, home: Path) -> Listing:
        """List all images, training images first."""
        rows = [
            (int(number), str(path), part)
            for part, name in _LISTS.items()
            for _, number, _, path in read_rows(home / name, (int, int, int, str), header=1)
        ]
        kinds = {number: path.split("/")[0].removesuffix("_final") for number, path, _ in rows}
        position = {number: it for it, number in enumerate(sorted(kinds))}
        return Listing(
            home,
            [path for _, path, _ in rows],
            [position[number] for number, _, _ in rows],
            [f"{kinds[number]} {number}" for number in position],
            [part for _, _, part in rows],
        )
