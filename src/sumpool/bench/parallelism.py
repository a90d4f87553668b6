"""Choose how many runs share a machine, and how they share it: ``--jobs auto``."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sumpool.system.cores import usable_cores
from sumpool.system.executors.mps import CONTROL
from sumpool.system.processes import run_in_processes
from sumpool.training.assemble import RECORDABLE
from sumpool.training.options import HardwareConfig, TrainConfig

#: GPU memory of a run: EfficientNet-Lite0, batch 32, 227 px, with CUB's decoded images. On an H200
#: it is 5.5 GB in float32 and 3.9 GB in bfloat16.
JOB_BYTES = 6_000_000_000
#: Maximum number of processes per GPU, with and without the multi-process service. On an H200,
#: fifteen eager runs were up to 8 % faster than eight with the service, and up to 3 % without it,
#: which is not worth the memory of seven runs (docs/results/parallelism-h200). With the service, up
#: to twelve compiled runs were tried (docs/results/fair-cub-h200).
MOST_WITH_MPS = 15
MOST_WITHOUT_MPS = 8
#: Share of a GPU's free memory that is used.
MEMORY_SHARE = 0.95
#: Data sets whose decoded images fit on a GPU once per process; others keep them in main memory,
#: once per machine.
ON_THE_GPU = frozenset({"cub", "cub-clutter", "cars196", "glyphs"})


@dataclass(frozen=True)
class Machine:
    """Resources of a machine.

    Attributes:
        cores: Number of cores that this process may use.
        gpu: Name of the first GPU; "" without one.
        free_bytes: Free memory of each GPU.
        mps: Whether the multi-process service is installed.
        compiler: Whether a C compiler is installed, which torch.compile needs.
    """

    cores: int
    gpu: str = ""
    free_bytes: tuple[int, ...] = ()
    mps: bool = False
    compiler: bool = False


@dataclass(frozen=True)
class Parallelism:
    """How runs share a machine.

    Attributes:
        jobs: Number of processes, with one run each.
        mps: Whether they share their GPU through :func:`~sumpool.system.executors.mps.mps_server`.
        hardware: Changes to :class:`~sumpool.training.config.HardwareConfig` for all runs.
        why: The reason, for a log.
        threads: Number of torch threads per process.
        gpus: Number of GPUs that the processes are spread over.
        compiled: Whether networks are compiled on a GPU.
    """

    jobs: int
    mps: bool
    hardware: Mapping[str, Any] = field(hash=False)
    why: str
    threads: int = 1
    gpus: int = 0
    compiled: bool = False

    def configure(
        self,
        config: TrainConfig,
        *,
        data_set: str = "",
        cache_dir: Path | None = None,
        keep: Collection[str] = (),
    ) -> TrainConfig:
        """Return ``config`` tuned for this machine; results stay the same up to rounding.

        Hardware options that differ from their defaults are kept. On a GPU, the network is compiled
        if the machine has a compiler, steps are recorded as CUDA graphs (whole steps if the loss
        allows it), and images are decoded once unless ``config`` names a cache. Precision never
        changes: ``--set hardware.precision=bf16-mixed`` is faster, but changes the numbers.

        Args:
            config: A configuration.
            data_set: Name of its data set; decoded images of small data sets are kept on the GPU.
            cache_dir: Folder of decoded images for all processes; None for a cache per process.
            keep: Hardware options that stay unchanged even at their defaults.

        Example:
            >>> parallelism = Parallelism(15, True, {"workers": 1}, "an example", gpus=1)
            >>> config = parallelism.configure(TrainConfig(loss="ms"), data_set="cub")
            >>> config.hardware.cuda_graph, config.hardware.workers, config.cache
            (True, 1, 'gpu')
        """
        plain, own = HardwareConfig(), config.hardware
        changes = dict(self.hardware)
        on_a_gpu = self.gpus and own.accelerator != "cpu" and own.devices * own.nodes == 1
        if on_a_gpu and self.compiled and not config.freeze_backbone:
            changes["compile"] = True
        if on_a_gpu and not (own.cuda_graph or own.cuda_step):
            if config.loss in RECORDABLE:
                changes["cuda_step"] = True
            elif not config.gsp.average_steps:
                # A recorded graph would not follow the switch of pooling after these steps.
                changes["cuda_graph"] = True
        kept = {name for name in changes if getattr(own, name) != getattr(plain, name)}
        for name in kept.union(keep) & changes.keys():
            del changes[name]
        config = replace(config, hardware=replace(own, **changes))
        if not on_a_gpu or config.cache != "none":
            return config
        folder = None if cache_dir is None else str(cache_dir)
        return replace(config, cache="gpu" if data_set in ON_THE_GPU else "ram", cache_dir=folder)


def auto_jobs(machine: Machine | None = None, *, job_bytes: int = JOB_BYTES) -> Parallelism:
    """Return the best known way to fill ``machine`` with runs of small networks.

    Without a GPU, this is one process per core with one thread each: batches of 32 images are too
    small to be split between cores. On a GPU, each process needs about one core and ``job_bytes``
    of memory; the number of processes is limited to what was measured to help.

    Args:
        machine: The machine; None for this one.
        job_bytes: GPU memory of a run, in bytes.

    Example:
        >>> auto_jobs(Machine(cores=8)).jobs
        8
        >>> auto_jobs(Machine(16, "NVIDIA H200", (140 * 10**9,), mps=True)).jobs
        15
        >>> auto_jobs(Machine(16, "NVIDIA A10", (22 * 10**9,), mps=True)).jobs
        3
    """
    if job_bytes < 1:
        raise ValueError(f"job_bytes must be at least 1, got {job_bytes}")
    machine = look_at_machine() if machine is None else machine
    if not machine.free_bytes:
        why = f"no GPU: one process per core, {machine.cores}, with one thread each"
        return Parallelism(machine.cores, False, {"workers": 0}, why)
    most = MOST_WITH_MPS if machine.mps else MOST_WITHOUT_MPS
    by_memory = sum(min(most, int(MEMORY_SHARE * free) // job_bytes) for free in machine.free_bytes)
    by_cores = max(1, machine.cores - 1)  # one is left for everything else
    jobs = max(1, min(by_cores, by_memory))
    free = ", ".join(f"{it / 1e9:.0f}" for it in machine.free_bytes)
    service = "with" if machine.mps else f"without {CONTROL}, so without"
    why = (
        f"{len(machine.free_bytes)} × {machine.gpu}, {free} GB free, and {machine.cores} cores: "
        f"{jobs} processes {service} the multi-process service. A run takes about a core and "
        f"{job_bytes / 1e9:.1f} GB; more than {most} per GPU do not help"
    )
    workers = max(1, machine.cores // jobs)
    gpus = min(jobs, len(machine.free_bytes))
    return Parallelism(
        jobs, machine.mps, {"workers": workers}, why, gpus=gpus, compiled=machine.compiler
    )


def part_of_a_node(gpus: float, cpus: float) -> Parallelism:
    """Return the settings of one run on a part of a cluster node, which the cluster fills.

    Example:
        >>> parallelism = part_of_a_node(0.1, 1)
        >>> parallelism.configure(TrainConfig(loss="c2")).hardware.cuda_step
        True
    """
    workers = max(1, int(cpus))
    hardware = {"workers": workers} if gpus else {}
    why = f"{gpus:g} of a GPU and {cpus:g} cores each"
    return Parallelism(1, False, hardware, why, threads=workers, gpus=1 if gpus else 0)


def look_at_machine() -> Machine:
    """Return the resources of the machine that this process runs on.

    Raises:
        WorkerError: If its GPUs cannot be used.
    """
    cores = usable_cores()
    if not torch.cuda.is_available():
        return Machine(cores)
    # In a separate process: querying takes memory on every GPU until the process ends.
    (looked,) = run_in_processes(_look_at_gpus, [torch.cuda.device_count()], 1)
    if looked.found is None:
        assert looked.failure is not None
        raise looked.failure
    name, free = looked.found
    service, compiler = shutil.which(CONTROL), shutil.which("cc") or shutil.which("gcc")
    return Machine(cores, name, free, service is not None, compiler is not None)


def _look_at_gpus(count: int) -> tuple[str, tuple[int, ...]]:
    free = tuple(torch.cuda.mem_get_info(index)[0] for index in range(count))
    return torch.cuda.get_device_name(0), free
