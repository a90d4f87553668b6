"""Executor that runs cells on a Ray cluster: machines that share a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sumpool.system.executors.ray_tasks import failure_of, run_task
from sumpool.system.processes import Done
from sumpool.system.ray_connection import connected
from sumpool.system.ray_nodes import (
    ClusterError,
    able_nodes,
    check_nodes,
    check_shares,
    shown_to_nodes,
)

__all__ = ["ClusterError", "RayCluster"]

#: Seconds between checks of running cells, and between attempts at a cell held elsewhere.
PAUSE = 2.0
#: Seconds that running cells have to write a checkpoint when they are canceled.
GRACE = 20.0

T = TypeVar("T")


class Ended(Protocol):
    """Result of an executor's work, which says how the cell ended."""

    @property
    def state(self) -> str: ...


R = TypeVar("R", bound=Ended)


@dataclass(frozen=True)
class RayCluster:
    """Runs cells as tasks of a Ray cluster.

    Ray restarts a task whose worker or node dies, on another node if necessary. This is safe: a
    cell is locked by the process that trains it, and has a row once it is finished. While the lock
    of a process that has just died is still visible, the cell is retried for ``patience`` seconds.

    All nodes need the same version of this package and must see ``folder`` under the same path,
    which is checked before the first cell. See docs/cluster.md.

    Args:
        address: "local" starts and stops Ray on this machine; "auto" joins the cluster that this
            machine is part of; "host:port" or "ray://host:port" joins the cluster there. None uses
            the connection of this process, else RAY_ADDRESS, else "local".
        gpus: Fraction of a GPU per cell, such as 0.1, or a whole number of GPUs; 0 hides them.
        cpus: CPUs per cell, which uses as many threads.
        retries: Maximum number of restarts of a cell whose process or node has died.
        folder: Folder that all nodes must see; None checks none.
        patience: Seconds to retry a cell that another process holds, and to wait for nodes when
            none is left.

    Raises:
        ClusterError: If a number is out of range.
    """

    address: str | None = None
    gpus: float = 0.0
    cpus: float = 1.0
    retries: int = 3
    folder: Path | None = None
    patience: float = 60.0

    def __post_init__(self) -> None:
        check_shares(self.cpus, self.gpus)
        if self.retries < 0:
            raise ClusterError(f"retries must be at least 0, got {self.retries}")

    def __call__(
        self, work: Callable[[T], R], cells: Sequence[T]
    ) -> Generator[Done[T, R], None, None]:
        """Apply ``work`` to ``cells`` on the cluster, and yield each outcome as it finishes.

        When the iterator is closed or interrupted, running cells are asked to write a checkpoint
        and end, and killed if they do not. A cluster started here is stopped.

        Args:
            work: Module-level function, or a partial of one, that the nodes can import.
            cells: Arguments of ``work``.

        Raises:
            ClusterError: If Ray is not installed, or the cluster cannot be reached or used.
        """
        seen = nullcontext() if self.folder is None else shown_to_nodes(self.folder.resolve())
        with connected(self.address) as ray, seen as witness:
            check_nodes(ray, self.cpus, self.gpus, witness)
            task = ray.remote(run_task).options(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_retries=self.retries,
                scheduling_strategy="SPREAD",
                **({} if self.gpus else _without_gpus(ray)),
            )
            submit = partial(task.remote, work, threads=max(1, int(self.cpus)), witness=witness)
            yield from _Run(ray, self, submit, cells).finished()


class _Run:
    """One call of an executor: cells that are running, and cells held by other processes."""

    def __init__(
        self, ray: Any, cluster: RayCluster, submit: Callable[[Any], Any], cells: Sequence[Any]
    ) -> None:
        self._ray, self._cluster, self._submit, self._cells = ray, cluster, submit, cells
        self._running: dict[Any, int] = {}
        self._again: dict[int, float] = {}  # time of the next attempt at a held cell
        self._held: dict[int, float] = {}  # time it was first found held
        self._alone: float | None = None  # time since when no node can run a cell

    def finished(self) -> Generator[Done[Any, Any], None, None]:
        try:
            self._start(range(len(self._cells)))
            while self._running or self._again:
                now = time.monotonic()
                self._start([it for it, when in self._again.items() if when <= now])
                for reference in self._ready():
                    index = self._running.pop(reference)
                    done = self._done(reference, index)
                    if done is not None:
                        yield done
                if self._nobody_left():
                    for index in [*self._running.values(), *self._again]:
                        yield Done(self._cells[index], None, ClusterError("no node is left"))
                    return
        finally:
            self._cancel()

    def _start(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._again.pop(index, None)
            self._running[self._submit(self._cells[index])] = index

    def _ready(self) -> list[Any]:
        if not self._running:
            time.sleep(PAUSE)
            return []
        ready: list[Any]
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=PAUSE)
        return ready

    def _done(self, reference: Any, index: int) -> Done[Any, Any] | None:
        cell = self._cells[index]
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Done(cell, None, failure_of(error, self._cluster.retries))
        if found.state != "running elsewhere":
            return Done(cell, found, None)
        now = time.monotonic()
        if now - self._held.setdefault(index, now) >= self._cluster.patience:
            return Done(cell, found, None)
        self._again[index] = now + PAUSE
        return None

    def _nobody_left(self) -> bool:
        if able_nodes(self._ray, self._cluster.cpus, self._cluster.gpus):
            self._alone = None
            return False
        now = time.monotonic()
        self._alone = self._alone or now
        return now - self._alone > self._cluster.patience

    def _cancel(self) -> None:
        left = list(self._running)
        if not left:
            return
        for reference in left:
            self._ray.cancel(reference, force=False)  # raises an interrupt: a run saves and ends
        _, left = self._ray.wait(left, num_returns=len(left), timeout=GRACE)
        for reference in left:
            self._ray.cancel(reference, force=True)


def _without_gpus(ray: Any) -> dict[str, Any]:
    # Ray leaves the GPUs of a node visible to tasks that request none.
    if not any(node["Resources"].get("GPU") for node in ray.nodes()):
        return {}  # a runtime environment would need separate processes
    return {"runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}}
