"""Embedding through Ray Data gives the index that one process gives."""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data.miniatures import parquet
from search.small_index import small_model, write_pictures
from sumpool.search import Index
from sumpool.search.bulk import RayCompute, _reason, _room, _Worker
from sumpool.search.folder import PARTS
from sumpool.system.errors import UserError
from sumpool.system.ray_nodes import ClusterError


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Ray with room for two workers, which are processes of their own."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'sumpool[ray]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'sumpool[ray]'")
    before = signal.getsignal(signal.SIGTERM)
    with (
        pytest.MonkeyPatch.context() as patch,
        # Not pytest's: the names of sockets in it may have no more than 107 characters.
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init("local", num_cpus=2, object_store_memory=100_000_000, _temp_dir=folder, **options)
        # Parts this small would all go to the worker that is there first.
        ray.data.DataContext.get_current().wait_for_min_actors_s = 300
        try:
            yield ray
        finally:
            ray.shutdown()
            signal.signal(signal.SIGTERM, before)


@pytest.mark.process
@pytest.mark.xdist_group("ray")
# Ray Data sets options of its own that it deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")
def test_two_workers_give_the_vectors_of_one_process_and_continue_by_shard(
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sumpool.search.parts.SIZE", 5)
    paths = write_pictures(tmp_path / "photos", 28)
    paths[9].write_bytes(b"no image")
    options: dict[str, Any] = {"model": small_model(), "batch_size": 4, "progress": False}
    alone = Index.build(tmp_path / "photos", tmp_path / "alone", **options)
    ray = RayCompute(progress=False)

    def interrupted(*arguments: Any) -> None:
        model, source, parts, folder, header = arguments
        ray(model, source, parts[:2], folder, header)
        raise KeyboardInterrupt

    together = tmp_path / "together"
    with pytest.raises(KeyboardInterrupt):
        Index.build(tmp_path / "photos", together, compute=interrupted, **options)
    kept = {path: path.stat().st_mtime_ns for path in (together / PARTS).iterdir()}
    assert len(kept) == 2

    def continued(*arguments: Any) -> None:
        ray(*arguments)
        now = {path: path.stat().st_mtime_ns for path in (together / PARTS).iterdir()}
        assert len(now) == 6
        assert kept.items() <= now.items()

    with caplog.at_level(logging.INFO):
        index = Index.build(tmp_path / "photos", together, compute=continued, **options)
    assert "18 images by 2 workers" in caplog.text
    assert len(index) == 27
    assert index.vectors.tobytes() == alone.vectors.tobytes()
    assert index.images.equals(alone.images)
    assert index.header.skipped == alone.header.skipped


@pytest.mark.parametrize("kind", ["files", "parquet"])
def test_a_worker_computes_the_parts_of_this_process(kind: str, tmp_path: Path) -> None:
    if kind == "files":
        write_pictures(tmp_path / "photos", 3)
    else:
        parquet(tmp_path / "photos", size=(60, 50))
    options: dict[str, Any] = {"model": small_model(), "progress": False}

    def through_worker(*arguments: Any) -> None:
        _, _, parts, folder, header = arguments
        worker = _Worker(folder, header, 1, False)
        assert worker({"indices": [parts[0].indices]})["images"] == [len(parts[0].indices)]

    alone = Index.build(tmp_path / "photos", tmp_path / "alone", **options)
    together = tmp_path / "together"
    index = Index.build(tmp_path / "photos", together, compute=through_worker, **options)
    assert index.vectors.tobytes() == alone.vectors.tobytes()
    assert index.images.equals(alone.images)


def test_workers_are_as_many_as_fit() -> None:
    node = {"CPU": 16.0, "GPU": 2.0}
    assert _room(node, 3, 0) == 5
    assert _room(node, 3, 0.5) == 4
    assert _room({"CPU": 8.0}, 1, 1) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": -1}, r"gpus must be in \[0, 1\] or a whole number, got -1"),
        ({"gpus": 1.5}, "gpus must be in .* got 1.5"),
        ({"cpus": 0}, "cpus must be more than 0, got 0"),
    ],
)
def test_numbers_that_cannot_be_used_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        RayCompute(**options)


def test_the_error_of_a_worker_is_that_of_the_user() -> None:
    inner, outer = RuntimeError("inner"), RuntimeError("first line\n  last line")
    inner.cause = UserError("photo.jpg is gone")  # type: ignore[attr-defined]
    outer.__cause__ = inner
    assert str(_reason(outer)) == "photo.jpg is gone"
    assert str(_reason(RuntimeError("first\nlast"))) == "a worker of Ray failed: last"
