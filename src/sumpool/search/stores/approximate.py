"""Approximate search with faiss: a graph or compressed vectors, next to those on disk.

"hnsw" is a graph of neighbors with a copy of the vectors, memory-mapped from its file. "ivfpq"
keeps 4 bits for every 2 dimensions in memory, 1/16 of the vectors, and ranks its candidates by the
original vectors. The search depth of both is calibrated against exact search when they are built.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from sumpool.search.stores.base import Found, Ids, Vectors, check_queries
from sumpool.search.stores.exact import ExactIndex, found, select
from sumpool.search.stores.training import CODES, train_index
from sumpool.system.digests import check_digests, write_digests
from sumpool.system.errors import UserError
from sumpool.system.files import StoreError, atomic_path
from sumpool.system.wording import counted

#: Kinds, each with the search depths (``efSearch``, ``nprobe``) to try.
REACH = {
    "hnsw": (32, 64, 128, 256, 512, 1024),
    "ivfpq": (8, 16, 32, 64, 128, 256, 512, 1024),
}
#: Candidates per requested neighbor that are ranked by the original vectors.
CANDIDATES = 100
#: Target recall@10, and the number of vectors it is measured with.
RECALL, SAMPLE = 0.99, 100
#: Filters that accept at most this share of the vectors are searched exactly.
NARROW = 0.1
#: Vectors added at a time.
_CHUNK = 10_000
#: Bits of a key that hold the version.
_VERSION_BITS = 32

logger = logging.getLogger(__name__)


class ApproximateIndex(ExactIndex):
    """Vectors with a faiss file that finds most nearest neighbors without comparing all.

    File and vectors are matched by id and version: surplus entries of the file are left out of the
    results; missing ones are added to it with ``build``, and compared one by one without.

    Args:
        path: The file; written by the first :meth:`add` with ``build``.
        kind: "hnsw" or "ivfpq".
        size: Dimension D of the vectors.
        build: Whether the file may be built or extended.

    Raises:
        StoreError: If the file is damaged or its vectors have another dimension.
    """

    def __init__(self, path: Path, kind: str, size: int, *, build: bool = False) -> None:
        super().__init__(size)
        self._path, self._kind, self._build = path, kind, build
        self._keys: Ids = np.empty(0, np.int64)
        self._listing = f"{path.stem}.sha256"
        self._file: Any = None
        if path.is_file():
            self._check()
            self._file = self._read()

    def add(
        self,
        ids: Ids,
        vectors: Vectors,
        labels: Sequence[str | None],
        versions: NDArray[np.uint32] | None = None,
    ) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`.

        Args:
            ids: At most 2³¹ − 1.
            vectors: As there.
            labels: As there.
            versions: A number per vector that distinguishes it from earlier ones with the same id.

        Raises:
            UserError: If there is no file and it may not be built.
        """
        if len(ids) and ids.max() >= 1 << 31:
            raise ValueError(f"ids must be less than 2³¹, got {ids.max()}")
        super().add(ids, vectors, labels)
        keys = ids << _VERSION_BITS
        if versions is not None:
            keys = keys + versions.astype(np.int64)
        self._keys = np.concatenate([self._keys, keys])
        self._grow()

    def remove(self, ids: Ids) -> None:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        self._keys = self._keys[~np.isin(self._ids, ids)]
        super().remove(ids)
        self._match()

    def search(self, queries: Vectors, k: int, labels: Collection[str] | None = None) -> Found:
        """See :class:`~sumpool.search.stores.base.VectorIndex`."""
        queries = check_queries(self._size, queries, k)
        accepted, share = None, 1.0
        if labels is not None:
            accepted = self._labels.among(labels)
            share = float(accepted.mean()) if len(accepted) else 0.0
        if self._file is None or not len(self) or share <= NARROW:
            return self._nearest(queries, k, accepted)
        answer = self._approximate(queries, k, accepted, share)
        if accepted is not None or self._alive is not None:
            answer = self._confirmed(answer, queries, k, accepted, share)
        if self._unstored.any():
            rest = self._unstored if accepted is None else self._unstored & accepted
            answer = answer.merged(self._nearest(queries, k, rest))
        return answer

    def close(self) -> None:
        """Release the vectors and the file."""
        super().close()
        self._keys, self._file = self._keys[:0], None

    def _confirmed(
        self,
        answer: Found,
        queries: Vectors,
        k: int,
        accepted: NDArray[np.bool_] | None,
        share: float,
    ) -> Found:
        """Replace answers that change with twice the depth by those of exact search.

        Vectors that are left out, by a filter or because they are gone, use up the depth: near
        them, few others are reached.
        """
        deeper = self._approximate(queries, k, accepted, share / 2)
        unsure = (answer.ids != deeper.ids).any(1) | (deeper.ids[:, -1] < 0)
        if unsure.any():
            stored = accepted
            if self._unstored.any():
                stored = ~self._unstored if accepted is None else ~self._unstored & accepted
            exact = self._nearest(np.ascontiguousarray(queries[unsure]), k, stored)
            deeper.ids[unsure], deeper.similarities[unsure] = exact
        return deeper

    def _approximate(
        self, queries: Vectors, k: int, accepted: NDArray[np.bool_] | None, share: float
    ) -> Found:
        """Search approximately among the accepted rows, a ``share`` of all."""
        options = self._options
        if share < 1:
            marked = self._rows >= 0
            if accepted is not None:
                marked &= accepted[self._rows]
            options = self._parameters(marked, share)
        if self._kind == "hnsw":
            similarities, places = self._search(queries, k, options)
            ids = self._stored_ids[places]
            if min(ids[:, -1].tolist(), default=0) < 0:  # fewer than k, which come first
                similarities[ids < 0] = -np.inf
            return Found(ids, similarities)
        _, places = self._search(queries, k * CANDIDATES, options)
        return self._compare(queries, k, np.where(places < 0, -1, self._rows[places]))

    def _search(self, queries: Vectors, k: int, options: Any) -> tuple[Vectors, Ids]:
        """Inner products of the k nearest and their places in the file, (Q, k)."""
        similarities = np.empty((len(queries), k), np.float32)
        places = np.empty((len(queries), k), np.int64)
        pointer = self._faiss.swig_ptr
        self._inner.search_c(
            *(len(queries), pointer(queries), k, pointer(similarities), pointer(places), options)
        )
        return similarities, places

    def _parameters(self, marked: NDArray[np.bool_] | None, share: float) -> Any:
        """Parameters of a search restricted to the marked vectors, a ``share`` of all."""
        selector = None if marked is None else select(self._faiss, marked)
        reach = math.ceil(self._reach / share)
        if self._kind == "hnsw":
            return self._faiss.SearchParametersHNSW(sel=selector, efSearch=reach)
        return self._faiss.SearchParametersIVF(sel=selector, nprobe=reach)

    def _compare(self, queries: Vectors, k: int, rows: Ids) -> Found:
        """Find the k nearest of the candidates (Q, c) by the original vectors."""
        similarities = np.full(rows.shape, -np.inf, np.float32)
        for query, own, out in zip(queries, rows, similarities, strict=True):
            there = own >= 0
            out[there] = self._vectors[own[there]] @ query
        order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
        return found(
            np.take_along_axis(rows, order, 1),
            np.take_along_axis(similarities, order, 1),
            self._ids,
        )

    def _grow(self) -> None:
        """Add missing vectors to the file, and match both."""
        if self._kind == "ivfpq" and len(self) < CODES:
            self._file = None
            if self._build:
                logger.info("ivfpq: fewer than %d vectors are compared one by one", CODES)
            return
        there = self._stored_keys()
        new = np.flatnonzero(~np.isin(self._keys, there)) if len(there) else np.arange(len(self))
        outdated = 2 * np.isin(there, self._keys).sum() < len(there)
        if len(new) and self._file is not None and not self._build:
            logger.warning(
                "%s lacks %s, which are compared one by one until sumpool index %s --update",
                *(self._path, counted(len(new), "vector"), self._path.parent),
            )
        elif len(new) or self._file is None:
            if not self._build:
                raise UserError(
                    f"{self._path} lacks {counted(len(new), 'vector')}: bring it up to date with "
                    f"sumpool index {self._path.parent} --update --store {self._kind}"
                )
            begun = time.perf_counter()
            if self._file is None or outdated:
                self._file = train_index(self._faiss, self._kind, self._vectors)
                new = np.arange(len(self))
            else:
                self._file = self._faiss.read_index(str(self._path))  # a mapped index cannot grow
            # Some are added last: until then they serve as queries that are not in the file.
            new = np.random.default_rng(0).permutation(new)
            held = min(SAMPLE, len(new) // 2)
            with tqdm(desc=self._kind, total=len(new), unit=" vectors") as bar:
                self._extend(np.sort(new[held:]), bar)
                recall = self._calibrate(new[:held])
                self._extend(new[:held], bar)
            # Removed until the new file is written: a digest that does not match means damage.
            (self._path.parent / self._listing).unlink(missing_ok=True)
            with atomic_path(self._path) as aside:
                self._faiss.write_index(self._file, str(aside))
            write_digests(self._path.parent, self._listing, only=[self._path.name])
            logger.info(
                "%s: %s of %d dimensions, %.3g MB, in %.0f s; recall@10 %.3f for %s",
                *(self._kind, counted(self._file.ntotal, "vector"), self._size),
                *(self._path.stat().st_size / 1e6, time.perf_counter() - begun, recall),
                counted(held, "query", "queries"),
            )
            self._file = self._read()
        self._match()

    def _extend(self, new: Ids, bar: tqdm[Any]) -> None:
        """Add rows to the index in memory."""
        for start in range(0, len(new), _CHUNK):
            rows = new[start : start + _CHUNK]
            block = np.ascontiguousarray(self._vectors[rows])
            self._file.add_with_ids(block, self._keys[rows])
            bar.update(len(rows))
        self._match()

    def _calibrate(self, rows: Ids) -> float:
        """Set the search depth with queries that are not in the file; return their recall@10.

        The depth never decreases: an update provides few queries.
        """
        queries = np.ascontiguousarray(self._vectors[rows])
        stored = np.isin(np.arange(len(self)), self._rows)
        expected = self._nearest(queries, 10, stored).ids
        least = self._reach if self._path.is_file() else 0
        recall = 1.0
        for reach in REACH[self._kind]:
            if reach >= least:
                self._reach = reach
                recall = _recall(self._approximate(queries, 10, None, 1.0).ids, expected)
                if recall >= RECALL:
                    return recall
        logger.warning("%s finds %.1f %% of the nearest 10 only", self._path, 100 * recall)
        return recall

    @property
    def _reach(self) -> int:
        """Search depth, stored in the file."""
        return int(self._inner.hnsw.efSearch if self._kind == "hnsw" else self._inner.nprobe)

    @_reach.setter
    def _reach(self, reach: int) -> None:
        if self._kind == "hnsw":
            self._inner.hnsw.efSearch = reach
        else:
            self._inner.nprobe = reach
        self._options = self._parameters(self._alive, 1.0)

    def _stored_keys(self) -> Ids:
        if self._file is None:
            return np.empty(0, np.int64)
        keys: Ids = self._faiss.vector_to_array(self._file.id_map)
        return keys

    def _match(self) -> None:
        """Find the row of each vector in the file; −1 for those that are gone."""
        order = np.argsort(self._keys)
        stored = self._stored_keys()
        place = np.searchsorted(self._keys, stored, sorter=order)
        nearest = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros_like(place)
        fits = self._keys[nearest] == stored if len(order) else np.zeros(len(stored), bool)
        self._rows = np.where(fits, nearest, -1)
        self._unstored = np.ones(len(self), bool)
        self._unstored[nearest[fits]] = False
        self._alive = None if fits.all() else fits
        # One extra entry at the end, for the −1 that faiss returns where it finds nothing.
        ids = self._ids[nearest] if len(order) else nearest
        self._stored_ids = np.append(np.where(fits, ids, -1), -1)
        if self._file is not None:
            self._inner = self._faiss.downcast_index(self._file.index)
            self._options = self._parameters(self._alive, 1.0)

    def _check(self) -> None:
        """Check the digest of the file."""
        try:
            check_digests(self._path.parent, self._listing, [self._path.name])
        except StoreError as error:
            raise self._damaged() from error

    def _damaged(self) -> StoreError:
        return StoreError(
            f"{self._path} is damaged: remove it, and build it again with sumpool index "
            f"{self._path.parent} --update --store {self._kind}"
        )

    def _read(self) -> Any:
        try:
            file = self._faiss.read_index(str(self._path), self._faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise self._damaged() from error
        if file.d != self._size:
            raise StoreError(f"{self._path} is of {file.d} dimensions, not {self._size}: remove it")
        return file


def _recall(ids: Ids, expected: Ids) -> float:
    """Share of the expected neighbors that were found."""
    pairs = zip(ids, expected, strict=True)
    hits = [np.isin(wanted[wanted >= 0], got).mean() for got, wanted in pairs if wanted[0] >= 0]
    return float(np.mean(hits)) if hits else 1.0
