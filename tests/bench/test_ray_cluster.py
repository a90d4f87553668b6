"""A grid on a Ray cluster of two nodes, which the tests start on this machine and kill parts of."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.ray_cells import looks_for_gpus, make_cells, read, sleepy, troubled
from sumpool.bench.store.store import BenchStore
from sumpool.system.executors.ray_cluster import ClusterError, RayCluster
from sumpool.system.locks import claim
from sumpool.system.processes import WorkerError
from sumpool.system.ray_nodes import NotSharedError, check_nodes, look_at, shown_to_nodes

TESTS = Path(__file__).resolve().parents[1]
#: Those that share the cluster; with `--dist loadgroup` it is started once.
on_a_cluster = [pytest.mark.process, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def ray() -> Any:
    return pytest.importorskip("ray", reason="Ray is not installed: pip install 'sumpool[ray]'")


@pytest.fixture(scope="module")
def cluster(ray: Any) -> Iterator[Any]:
    """A head and a second node, a CPU each; a dead node is noticed within a second."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80_000_000}
    health = {"initial_delay_ms": 0, "period_ms": 300, "timeout_ms": 2000, "failure_threshold": 2}
    config = {f"health_check_{name}": value for name, value in health.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(TESTS))
        before = signal.getsignal(signal.SIGTERM)
        # Not pytest's: the names of sockets in it may have no more than 107 characters.
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            patch.setenv("RAY_TMPDIR", folder)
            head = {"include_dashboard": False, "no_monitor": True}
            nodes = Cluster(
                initialize_head=True, head_node_args={**size, **head, "_system_config": config}
            )
            try:
                nodes.add_node(**size)
                yield nodes
            finally:
                nodes.shutdown()
                signal.signal(signal.SIGTERM, before)


def raylet(node: Any) -> int:
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def check_whole(store: Path, count: int, lost: int) -> None:
    """Every cell has one row, none is torn; only those that were killed were begun twice."""
    rows = BenchStore(store).rows()
    assert [row.seed for row in rows] == list(range(count))
    assert BenchStore(store).damaged() == []
    begun = Counter(it.seed for it in read(store) if it.what == "begin")
    # An attempt may be killed before it writes that it began.
    assert all(row.attempts >= begun[row.seed] >= 1 for row in rows)
    assert sum(row.attempts for row in rows) <= count + lost
    assert not list(store.glob(".shown-*"))


class TestOnACluster:
    pytestmark = on_a_cluster

    def test_failures_come_back_with_their_traceback(self, cluster: Any, tmp_path: Path) -> None:
        work = partial(troubled, tmp_path)
        found = RayCluster(cluster.address, folder=tmp_path, retries=1)(work, make_cells(5))
        done = {it.item.member.seed: it for it in found}
        assert isinstance(done[0].failure, ValueError)
        assert str(done[0].failure) == "nought has no training"
        assert "ray_cells.py" in done[0].failure.__notes__[0]
        assert isinstance(done[1].failure, WorkerError)
        assert str(done[1].failure) == "UnsendableError: 1 and 2"
        # One that was killed once is started again; one that always is, is given up.
        assert done[2].found is not None
        assert done[2].found.state == "done"
        assert isinstance(done[3].failure, WorkerError)
        assert "(restarted 1 time)" in str(done[3].failure)
        assert [row.seed for row in BenchStore(tmp_path).rows()] == [2, 4]
        assert Counter(it.seed for it in read(tmp_path)) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 1}

    def test_a_held_cell_is_tried_again(self, cluster: Any, tmp_path: Path) -> None:
        first, second = make_cells(2)
        with contextlib.ExitStack() as holds:
            for cell in (first, second):
                assert holds.enter_context(claim(tmp_path / "claims" / cell.id))
            free = threading.Timer(4, holds.pop_all().close)
            free.start()
            executor = RayCluster(cluster.address, folder=tmp_path)
            done = list(executor(partial(sleepy, tmp_path, 0.0), [first, second]))
        assert [it.found.state for it in done if it.found] == ["done", "done"]
        check_whole(tmp_path, 2, lost=0)

    def test_a_cell_that_stays_held_is_running_elsewhere(
        self, cluster: Any, tmp_path: Path
    ) -> None:
        (cell,) = make_cells(1)
        with claim(tmp_path / "claims" / cell.id):
            executor = RayCluster(cluster.address, patience=0.5)
            (done,) = executor(partial(sleepy, tmp_path, 0.0), [cell])
        assert done.found is not None
        assert done.found.state == "running elsewhere"

    def test_what_runs_is_asked_to_end_and_the_cluster_stays(
        self, ray: Any, cluster: Any, tmp_path: Path
    ) -> None:
        found = RayCluster(cluster.address)(partial(sleepy, tmp_path, 60.0), make_cells(4))

        def interrupt_the_runner() -> None:
            until(lambda: len(read(tmp_path)) == 2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt_the_runner).start()
        with pytest.raises(KeyboardInterrupt):
            next(found)
        assert Counter(it.what for it in read(tmp_path)) == {"begin": 2, "interrupted": 2}
        assert not ray.is_initialized()
        assert BenchStore(tmp_path).rows() == []
        # The cluster goes on.
        again = RayCluster(cluster.address)(partial(sleepy, tmp_path, 0.0), make_cells(1))
        assert [it.failure for it in again] == [None]

    def test_nodes_that_cannot_do_it_are_named_before_anything_runs(
        self, ray: Any, cluster: Any, tmp_path: Path
    ) -> None:
        work, cells = partial(sleepy, tmp_path, 0.0), make_cells(2)
        with pytest.raises(ClusterError, match=r"gpus is 0.5, but no node .* has a GPU"):
            next(RayCluster(cluster.address, gpus=0.5)(work, cells))
        with pytest.raises(ClusterError, match=r"cpus is 2, but no node .* has more than 1"):
            next(RayCluster(cluster.address, cpus=2)(work, cells))
        unheld = tmp_path / "unheld"
        unheld.touch()
        ray.init(cluster.address, log_to_driver=False, logging_level="error")
        try:
            with pytest.raises(ClusterError, match=r"the node \S+ .* not the locks"):
                check_nodes(ray, 1, 0, unheld)
            with pytest.raises(ClusterError, match="connected to a Ray cluster already"):
                next(RayCluster(cluster.address)(work, cells))
            done = list(RayCluster()(work, cells[:1]))
            assert ray.is_initialized()
        finally:
            ray.shutdown()
        assert [it.failure for it in done] == [None]
        assert {it.seed for it in read(tmp_path)} == {0}

    def test_the_handler_of_a_program_stays(self, cluster: Any, tmp_path: Path) -> None:
        def handler(number: int, frame: object) -> None: ...

        before = signal.signal(signal.SIGTERM, handler)
        try:
            work = partial(sleepy, tmp_path, 0.0)
            for _ in RayCluster(cluster.address)(work, make_cells(1)):
                assert signal.getsignal(signal.SIGTERM) is handler
            assert signal.getsignal(signal.SIGTERM) is handler
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_cells_take_parts_of_a_gpu_or_see_none(self, cluster: Any, tmp_path: Path) -> None:
        # A GPU in name: Ray gives it away all the same. Cells wait for each other.
        node = cluster.add_node(num_cpus=2, num_gpus=1, object_store_memory=80_000_000)
        try:
            work = partial(looks_for_gpus, tmp_path)
            half, none = RayCluster(cluster.address, gpus=0.5), RayCluster(cluster.address, gpus=0)
            for executor, cells in ((half, make_cells(2)), (none, make_cells(4)[2:])):
                assert [it.failure for it in executor(work, cells)] == [None, None]
            with pytest.raises(ClusterError, match=r"gpus is 2, but no node .* more than 1"):
                next(RayCluster(cluster.address, gpus=2)(work, make_cells(1)))
        finally:
            cluster.remove_node(node)
        seen = [(tmp_path / f"gpus-{seed}").read_text() for seed in range(4)]
        assert seen == ["0", "0", "", ""]

    def test_a_killed_runner_is_run_again(self, cluster: Any, tmp_path: Path) -> None:
        count, seconds = 6, 1.5
        script = f"from bench.ray_cells import drive; drive({cluster.address!r}, {str(tmp_path)!r}"
        runner = subprocess.Popen(
            [sys.executable, "-c", f"{script}, {count}, {seconds})"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: len(BenchStore(tmp_path).rows()) >= 2)
        finally:
            runner.kill()
            runner.wait()
        assert len(BenchStore(tmp_path).rows()) < count
        for path in tmp_path.glob(".shown-*"):
            path.unlink()  # that of the killed one
        executor = RayCluster(cluster.address, folder=tmp_path)
        done = list(executor(partial(sleepy, tmp_path, seconds), make_cells(count)))
        states = Counter(it.found.state for it in done if it.found)
        assert states["done"] + states["finished elsewhere"] == count
        check_whole(tmp_path, count, lost=2)

    # The last one: it leaves a cluster of one node.
    def test_a_grid_outlives_a_node(self, cluster: Any, tmp_path: Path) -> None:
        (doomed,) = cluster.worker_nodes
        count = 6

        def kill_in_the_middle() -> None:
            def busy() -> bool:
                entries = [it for it in read(tmp_path) if it.raylet == raylet(doomed)]
                return bool(entries) and entries[-1].what == "begin" and len(read(tmp_path)) > 3

            until(busy)
            os.kill(raylet(doomed), signal.SIGKILL)

        killer = threading.Thread(target=kill_in_the_middle)
        killer.start()
        executor = RayCluster(cluster.address, folder=tmp_path)
        done = list(executor(partial(sleepy, tmp_path, 1.0), make_cells(count)))
        killer.join()
        assert [it.failure for it in done] == [None] * count
        assert sorted(it.item.member.seed for it in done) == list(range(count))
        check_whole(tmp_path, count, lost=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gpus": -0.1}, r"gpus must be in \[0, 1\] or a whole number, got -0.1"),
        ({"gpus": 1.5}, r"gpus must be in \[0, 1\] or a whole number, got 1.5"),
        ({"cpus": 0}, "cpus must be more than 0, got 0"),
        ({"retries": -1}, "retries must be at least 0, got -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        RayCluster("local", **wrong)  # type: ignore[arg-type]


def test_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'sumpool\[ray\]'"):
        next(RayCluster("local")(partial(sleepy, tmp_path, 0.0), make_cells(1)))


def test_an_address_without_a_cluster_is_named(
    ray: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work, cells = partial(sleepy, tmp_path, 0.0), make_cells(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    for address in (free, f"ray://{free}"):
        with pytest.raises(ClusterError, match=f"nobody answers at address '{address}'"):
            next(RayCluster(address)(work, cells))

    def refuse(**_: object) -> None:
        raise ConnectionError("no Ray here")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ClusterError, match=r"at address 'auto' \(.*RAY_AUTH_MODE.*: no Ray here"):
        next(RayCluster("auto")(work, cells))


def test_a_node_must_see_the_folder_and_its_locks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sumpool.system.ray_nodes.SEEN", 0.0)
    with shown_to_nodes(tmp_path) as witness:
        look_at(witness)
    with pytest.raises(NotSharedError, match="does not see"):
        look_at(witness)
    witness.touch()
    with pytest.raises(NotSharedError, match="not the locks"):
        look_at(witness)
