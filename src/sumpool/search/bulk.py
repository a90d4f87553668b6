"""Embedding on a Ray cluster: Ray Data distributes the parts of an index to workers."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from sumpool.models import Embedder
from sumpool.models.opening import load_embedder
from sumpool.search.folder import MODEL, Header
from sumpool.search.parts import Part, embed_parts, plan_parts, read_part
from sumpool.search.source import Source
from sumpool.system.errors import UserError
from sumpool.system.memory import reuse_freed_memory
from sumpool.system.ray_connection import connected
from sumpool.system.ray_nodes import (
    ClusterError,
    able_nodes,
    check_nodes,
    check_shares,
    shown_to_nodes,
)
from sumpool.system.wording import counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayCompute:
    """Computes the parts of an index on a Ray cluster; pass it as ``compute`` to ``Index.build``.

    Every worker opens the images and the model once, then writes parts to the index folder one by
    one. Existing parts are not recomputed: an interrupted build resumes, with or without a cluster.
    All nodes need the same version of this package, and must see the index folder and the images
    under the same paths. See docs/cluster.md.

    Args:
        address: "local" starts and stops Ray on this machine; "auto" joins the cluster of this
            machine; "host:port" or "ray://host:port" joins the cluster at that address. None uses
            the connection of this process, else RAY_ADDRESS, else "local".
        gpus: GPUs per worker: a fraction such as 0.5, or a whole number; 0 uses none.
        cpus: CPUs per worker, which also set its number of threads.
        progress: Whether to show a progress bar.

    Raises:
        ClusterError: If ``gpus`` or ``cpus`` is invalid.
    """

    address: str | None = None
    gpus: float = 0.0
    cpus: float = 1.0
    progress: bool = True

    def __post_init__(self) -> None:
        check_shares(self.cpus, self.gpus)

    def __call__(
        self, model: Embedder, source: Source, parts: Sequence[Part], folder: Path, header: Header
    ) -> None:
        """Compute the parts missing from the index ``folder``.

        Raises:
            ClusterError: If Ray is missing, or the cluster cannot be reached or used.
        """
        folder = folder.resolve()
        missing = [part for part in parts if read_part(folder, part) is None]
        if not missing:
            return
        with connected(self.address) as ray, shown_to_nodes(folder) as witness:
            check_nodes(ray, self.cpus, self.gpus, witness)
            self._run(ray, missing, folder, header)

    def _run(self, ray: Any, missing: list[Part], folder: Path, header: Header) -> None:
        import ray.data as ray_data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray_data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        nodes = able_nodes(ray, self.cpus, self.gpus)
        room = sum(_room(node["Resources"], self.cpus, self.gpus) for node in nodes)
        pool = ray_data.ActorPoolStrategy(size=min(len(missing), room))
        embedded = ray_data.from_items(
            [{"indices": list(part.indices)} for part in missing], override_num_blocks=len(missing)
        ).map_batches(
            _Worker,
            fn_constructor_args=(folder, header, max(1, int(self.cpus)), self.gpus > 0),
            batch_size=1,
            compute=pool,
            num_cpus=self.cpus,
            num_gpus=self.gpus,
        )
        total = sum(len(part.indices) for part in missing)
        workers = set()
        try:
            with tqdm(
                desc="embedding", total=total, unit=" images", disable=not self.progress
            ) as bar:
                for row in embedded.iter_rows():
                    bar.update(int(row["images"]))
                    workers.add(row["worker"])
        except ray.exceptions.RayError as error:
            raise _reason(error) from error
        logger.info("%s by %s", counted(total, "image"), counted(len(workers), "worker"))


class _Worker:
    """A worker on a node, which opens the images and the model once."""

    def __init__(self, folder: Path, header: Header, threads: int, gpu: bool) -> None:
        reuse_freed_memory()
        torch.set_num_threads(threads)
        self.folder, self.header, self.threads = folder, header, threads
        self.source = Source.of(header)
        self.model = load_embedder(folder / MODEL, "cuda" if gpu else "cpu")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        # Planned again: images that changed in the meantime yield another part.
        indices = [int(index) for index in batch["indices"][0]]
        embed_parts(
            *(self.model, self.source, plan_parts(self.source, indices, self.header)),
            *(self.folder, self.header),
            workers=self.threads,
            progress=False,
        )
        worker = f"{socket.gethostname()} {os.getpid()}"
        return {"images": np.array([len(indices)]), "worker": np.array([worker])}


def _room(resources: dict[str, float], cpus: float, gpus: float) -> int:
    """Number of workers that fit on a node."""
    room = int(resources.get("CPU", 0) / cpus)
    return min(room, int(resources.get("GPU", 0) / gpus)) if gpus else room


def _reason(error: BaseException) -> UserError:
    """Return the user error raised in a worker, or else one that says how the worker failed."""
    below: BaseException | None = error
    while below is not None:
        cause = getattr(below, "cause", None)
        if isinstance(cause, UserError):
            return cause
        below = cause if isinstance(cause, BaseException) else below.__cause__
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ClusterError(f"a worker of Ray failed: {lines[-1] if lines else type(error).__name__}")
