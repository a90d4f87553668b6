"""In-shop Clothes Retrieval, the benchmark of DeepFashion with shop photographs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from sumpool.data.base import DataError
from sumpool.data.sets.archive import ArchiveLayout, read_rows
from sumpool.data.sets.published import Count, Listing, PublishedDataset

_LIST = "list_eval_partition.txt"


class InShop(PublishedDataset):
    """In-shop Clothes Retrieval [inshop]: 52,712 photographs of 7,982 pieces of clothing.

    Read from ``list_eval_partition.txt`` (which may be in ``Eval/``) and ``img/`` (which may be in
    ``Img/``). Splits: "train" (3,997 pieces), "query" and "gallery" (the other 3,985), and "all".
    Queries are retrieved from the gallery.
    """

    layout = ArchiveLayout(
        "In-shop Clothes Retrieval",
        ((f"Eval/{_LIST}", _LIST),),
        inside=(
            "In-shop Clothes Retrieval Benchmark",
            "In-shop_Clothes_Retrieval_Benchmark",
            "In_shop_Clothes_Retrieval_Benchmark",
            "InShop",
            "In-shop",
            "inshop",
        ),
    )
    published: ClassVar = {
        "train": Count(3997, 25882),
        "query": Count(3985, 14218),
        "gallery": Count(3985, 12612),
    }

    @classmethod
    def read(cls, home: Path) -> Listing:
        """List all images in file order."""
        path = cls.layout.path(home, _LIST)
        rows = read_rows(path, (str, str, str), header=2)  # image count, column names
        paths, items, parts = ([str(row[it]).strip() for row in rows] for it in range(3))
        for image, part in zip(paths, parts, strict=True):
            if part not in cls.published:
                raise DataError(f"{path}: {image} is in {part!r}, wanted one of {[*cls.published]}")
        names = sorted(set(items))
        position = {name: it for it, name in enumerate(names)}
        folder = home / "Img" if (home / "Img" / "img").is_dir() else home
        return Listing(folder, paths, [position[item] for item in items], names, parts)
