"""Search with Milvus: a file on this machine (Milvus Lite), a server, or a cluster."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.search.stores.base import Found, Ids, Vectors, check_queries, check_rows
from sumpool.system.errors import UserError
from sumpool.system.extras import import_extra
from sumpool.system.wording import counted

#: Environment variable with the token of a server, or "user:password".
TOKEN = "MILVUS_TOKEN"
#: Up to this many vectors, a new collection is searched exactly.
EXACT = 1_000_000
#: Maximum number of results of a query in Milvus.
MOST = 16_384
#: Timeout of requests in seconds.
TIMEOUT = 60.0
#: Bytes of vectors, and number of ids, per request.
_BYTES, _IDS = 8_000_000, 10_000
#: Maximum length of a label in bytes, as limited by Milvus.
_LABEL = 65_535


class MilvusIndex:
    """A Milvus collection with the fields id, version, label, label_key and vector.

    Filters refer to labels by their keys, 63-bit digests, so that no label enters an expression.

    Args:
        uri: Address of the server, such as "http://host:19530", or a path that ends in ".db" for
            Milvus Lite. Text after a "#" is the name of the collection.
        folder: The index folder: paths are relative to it, and it determines the name of the
            collection if the address does not.
        size: Dimension D of the vectors.
        expected: Expected number of vectors; a new collection for more than a million is searched
            approximately, by the index that Milvus chooses.

    Raises:
        UserError: If pymilvus is missing, the server does not answer, or the vectors in the
            collection have another dimension.
    """

    def __init__(self, uri: str, folder: Path, size: int, expected: int = 0) -> None:
        place, _, name = uri.partition("#")
        if urlsplit(place).password is not None:
            raise UserError(f"store must hold no password, it is stored: set {TOKEN} instead")
        if not urlsplit(place).scheme:
            if not place.endswith(".db"):
                raise UserError(f"store must be milvus:http://HOST:PORT or end in .db, got {uri!r}")
            place = str(folder.resolve() / place)
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()
        self._name = name or f"sumpool_{digest[:16]}"
        self._size, self._place = size, place
        client = import_extra("pymilvus", "milvus", "Milvus needs").MilvusClient
        # Errors are raised anyway; the client also logs calls that Milvus Lite does not implement.
        for talker in ("pymilvus", "grpc._server"):
            logging.getLogger(talker).setLevel(logging.CRITICAL)
        with self._named_errors():
            self._client = client(place, token=os.environ.get(TOKEN, ""), timeout=TIMEOUT)
            if not self._client.has_collection(self._name):
                self._create("FLAT" if expected <= EXACT else "AUTOINDEX")
            self._client.load_collection(self._name)
            fields = self._client.describe_collection(self._name)["fields"]
        sizes = [it["params"].get("dim") for it in fields if it["name"] == "vector"]
        if sizes != [size]:
            raise UserError(
                f"the collection {self._name} of {place} is not of vectors of {size} dimensions: "
                "name another after a # in the address"
            )

    def add(
        self,
        ids: Ids,
        vectors: Vectors,
        labels: Sequence[str | None],
        versions: NDArray[np.uint32] | None = None,
    ) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`.

        Args:
            ids: As there; vectors with existing ids are replaced.
            vectors: As there.
            labels: As there.
            versions: A number per vector that distinguishes it from earlier ones with the same id.
        """
        check_rows(self._size, ids, vectors, labels)
        numbers = np.zeros(len(ids), np.uint32) if versions is None else versions
        step = max(1, _BYTES // (4 * self._size))
        with tqdm(desc="milvus", total=len(ids), unit=" vectors") as bar, self._named_errors():
            for start in range(0, len(ids), step):
                part = slice(start, start + step)
                columns = (ids[part].tolist(), numbers[part].tolist(), labels[part], vectors[part])
                rows = [
                    {
                        "id": id,
                        "version": version,
                        "label": label,
                        "label_key": _key(label),
                        "vector": vector.tolist(),
                    }
                    for id, version, label, vector in zip(*columns, strict=True)
                ]
                self._client.upsert(self._name, rows)
                bar.update(len(rows))
            self._client.flush(self._name)  # rows are indexed only then

    def remove(self, ids: Ids) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        with self._named_errors():
            for start in range(0, len(ids), _IDS):
                self._client.delete(self._name, ids=ids[start : start + _IDS].tolist())

    def search(self, queries: Vectors, k: int, labels: Collection[str] | None = None) -> Found:
        """See :class:`~sumpool.search.stores.base.VectorIndex`; k is at most 16,384."""
        queries = check_queries(self._size, queries, k)
        if k > MOST:
            raise ValueError(f"k must be at most {MOST:,} with Milvus, got {k:,}")
        out = Found(
            np.full((len(queries), k), -1, np.int64),
            np.full((len(queries), k), -np.inf, np.float32),
        )
        if not len(queries) or (labels is not None and not labels):
            return out
        accepted = "" if labels is None else f"label_key in {sorted(map(_key, labels))}"
        with self._named_errors():
            answers = self._client.search(
                self._name, list(queries), filter=accepted, limit=k, output_fields=["id"]
            )
        for row, hits in enumerate(answers):
            out.ids[row, : len(hits)] = [hit["id"] for hit in hits]
            out.similarities[row, : len(hits)] = [hit["distance"] for hit in hits]
        return out

    def __len__(self) -> int:
        with self._named_errors():
            answer = self._client.query(self._name, output_fields=["count(*)"])
        return int(answer[0]["count(*)"])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def synchronize(
        self,
        ids: Ids,
        vectors: Vectors,
        labels: Sequence[str | None],
        versions: NDArray[np.uint32] | None = None,
    ) -> None:
        """Make the collection hold exactly these vectors, sending only differences."""
        numbers = np.zeros(len(ids), np.uint32) if versions is None else versions
        there = self._stored()
        wanted = dict(zip(ids.tolist(), zip(numbers.tolist(), labels, strict=True), strict=True))
        gone = [id for id, known in there.items() if wanted.get(id) != known]
        self.remove(np.array(gone, np.int64))
        new = np.array([row for row, id in enumerate(wanted) if there.get(id) != wanted[id]], int)
        if len(new):
            self.add(ids[new], vectors[new], [labels[row] for row in new], numbers[new])

    def _stored(self) -> dict[int, tuple[int, str | None]]:
        """Version and label of every stored vector, by id."""
        out: dict[int, tuple[int, str | None]] = {}
        fields = ["id", "version", "label"]
        with self._named_errors():
            pages = self._client.query_iterator(self._name, batch_size=_IDS, output_fields=fields)
            while page := pages.next():
                out |= {row["id"]: (row["version"], row["label"]) for row in page}
            pages.close()
        return out

    def _create(self, kind: str) -> None:
        from pymilvus import DataType

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("version", DataType.INT64)
        schema.add_field("label", DataType.VARCHAR, max_length=_LABEL, nullable=True)
        schema.add_field("label_key", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._size)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=kind, metric_type="IP")
        self._client.create_collection(
            self._name, schema=schema, index_params=index, consistency_level="Strong"
        )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        from pymilvus import MilvusException

        try:
            yield
        except MilvusException as error:
            reason = str(error.message).splitlines()[0]
            raise UserError(f"Milvus at {self._place} says: {reason}") from error


def _key(label: str | None) -> int:
    """Key of a label; −1 for None."""
    if label is None:
        return -1
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8]) >> 1


def check_count(index: MilvusIndex, count: int, folder: Path, store: str) -> None:
    """Check that a collection holds as many vectors as the index folder.

    Raises:
        UserError: If it does not.
    """
    if len(index) != count:
        raise UserError(
            f"{store} holds {counted(len(index), 'vector')}, and {folder} {count:,}: bring it up "
            f"to date with sumpool index {folder} --update"
        )
