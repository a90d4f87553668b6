"""Checks of the nodes of a Ray cluster, before anything runs on them."""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sumpool.system.errors import UserError
from sumpool.system.locks import claim, is_claimed

#: Seconds a node has to answer: it starts a process that imports this package.
ANSWER = 180.0
#: Seconds within which a file must become visible on all nodes.
SEEN = 10.0


class ClusterError(UserError):
    """A Ray cluster cannot be used; the message says why."""


class NotSharedError(Exception):
    """A node does not see the results folder or its locks."""


def check_shares(cpus: float, gpus: float) -> None:
    """Check the CPUs and GPUs that a cell or worker asks for.

    Raises:
        ClusterError: If no cluster can provide them.
    """
    if not 0 <= gpus <= 1 and not (gpus > 1 and gpus % 1 == 0):
        raise ClusterError(f"gpus must be in [0, 1] or a whole number, got {gpus:g}")
    if not 0 < cpus < math.inf:
        raise ClusterError(f"cpus must be more than 0, got {cpus:g}")


def able_nodes(ray: Any, cpus: float, gpus: float) -> list[dict[str, Any]]:
    """Return the live nodes with enough CPUs and GPUs for a cell."""
    return [
        node
        for node in ray.nodes()
        if node["Alive"]
        and node["Resources"].get("CPU", 0) >= cpus
        and node["Resources"].get("GPU", 0) >= gpus
    ]


@contextmanager
def shown_to_nodes(folder: Path) -> Iterator[Path]:
    """Yield a file in ``folder``, locked by this process, for :func:`look_at` on the nodes."""
    witness = folder / f".shown-{secrets.token_hex(8)}"
    try:
        with claim(witness):
            yield witness
    finally:
        witness.unlink(missing_ok=True)


def look_at(witness: Path) -> None:
    """Check that this node sees the file ``witness`` and the lock another process holds on it.

    Raises:
        NotSharedError: If it does not see the file or the lock.
    """
    here = f"the node {socket.gethostname()}"
    end = time.monotonic() + SEEN
    while not witness.exists():  # a network file system may take a moment
        if time.monotonic() > end:
            raise NotSharedError(
                f"{here} does not see {witness.parent}: it must be on a file system that all "
                "nodes share, under the same path"
            )
        time.sleep(0.1)
    if not is_claimed(witness):
        raise NotSharedError(
            f"{here} sees {witness.parent}, but not the locks of other machines in it: two "
            "nodes would run the same cell"
        )


def check_nodes(ray: Any, cpus: float, gpus: float, witness: Path | None) -> None:
    """Check that every node that could run a cell has this package and sees ``witness``.

    Raises:
        ClusterError: If no node is large enough, or one fails the check; names that node.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = able_nodes(ray, cpus, gpus)
    if not nodes:
        raise ClusterError(_why_no_node(ray, cpus, gpus))
    tasks = {
        node["NodeManagerAddress"] + " " + node["NodeID"][:8]: ray.remote(_look)
        .options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote(witness)
        for node in nodes
    }
    end = time.monotonic() + ANSWER
    for name, task in tasks.items():
        try:
            theirs = ray.get(task, timeout=max(0.0, end - time.monotonic()))
        except ray.exceptions.GetTimeoutError as error:
            raise ClusterError(f"the node {name} has not answered in {ANSWER:.0f} s") from error
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise ClusterError(f"the node {name} cannot be used: {_describe(cause)}") from error
        if theirs != version("sumpool"):
            raise ClusterError(
                f"the node {name} has sumpool {theirs}, and here is {version('sumpool')}: "
                "install the same version on all nodes"
            )


def _look(witness: Path | None) -> str:
    if witness is not None:
        look_at(witness)
    return version("sumpool")


def _why_no_node(ray: Any, cpus: float, gpus: float) -> str:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {name: max((it.get(name, 0) for it in alive), default=0) for name in ("CPU", "GPU")}
    if gpus > most["GPU"]:
        there = f"has more than {most['GPU']:g}" if most["GPU"] else "has a GPU"
        return f"gpus is {gpus:g}, but no node of the Ray cluster {there}"
    if cpus > most["CPU"]:
        return f"cpus is {cpus:g}, but no node of the Ray cluster has more than {most['CPU']:g}"
    return f"no node of the Ray cluster has both {cpus:g} CPUs and {gpus:g} GPUs"


def _describe(error: BaseException) -> str:
    if isinstance(error, NotSharedError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; install sumpool and what it needs on all nodes"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
