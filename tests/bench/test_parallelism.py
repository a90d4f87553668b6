"""What `--jobs auto` does on which machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.bench.parallelism import (
    JOB_BYTES,
    MOST_WITH_MPS,
    MOST_WITHOUT_MPS,
    Machine,
    Parallelism,
    auto_jobs,
    look_at_machine,
)
from sumpool.losses import LOSSES
from sumpool.system.executors.devices import take_gpu
from sumpool.training import GspConfig, HardwareConfig, TrainConfig
from sumpool.training.assemble import RECORDABLE
from sumpool.training.config import differences

GB = 10**9
ON_A_GPU = Parallelism(15, True, {"workers": 1}, "for a test", gpus=1)
COMPILED = replace(ON_A_GPU, compiled=True)


def test_without_a_gpu_it_is_one_process_per_core() -> None:
    parallelism = auto_jobs(Machine(6))
    assert (parallelism.jobs, parallelism.threads, parallelism.mps, parallelism.gpus) == (
        6,
        1,
        False,
        0,
    )
    assert parallelism.hardware == {"workers": 0}


@pytest.mark.parametrize(
    ("cores", "free", "mps", "jobs"),
    [
        (64, [10 * JOB_BYTES], True, 9),  # not all memory is given away
        (4, [100 * JOB_BYTES], True, 3),  # cores
        (64, [100 * JOB_BYTES], True, MOST_WITH_MPS),
        (64, [100 * JOB_BYTES], False, MOST_WITHOUT_MPS),
        (64, [3 * JOB_BYTES, 100 * JOB_BYTES], True, 2 + MOST_WITH_MPS),
        (1, [100 * JOB_BYTES], True, 1),
        (64, [JOB_BYTES // 2], True, 1),  # it is tried; training says what it lacks
    ],
)
def test_processes_have_cores_and_memory_and_are_of_use(
    cores: int, free: list[int], mps: bool, jobs: int
) -> None:
    parallelism = auto_jobs(Machine(cores, "NVIDIA H200", tuple(free), mps))
    assert parallelism.jobs == jobs
    assert parallelism.mps == mps
    assert parallelism.gpus == min(jobs, len(free))
    assert f"{jobs} processes with" in parallelism.why


def test_smaller_runs_are_more() -> None:
    machine = Machine(64, "NVIDIA A10", (24 * GB,), mps=True)
    assert auto_jobs(machine, job_bytes=6 * GB).jobs == 3
    assert auto_jobs(machine, job_bytes=2 * GB).jobs == 11
    with pytest.raises(ValueError, match="job_bytes must be at least 1, got 0"):
        auto_jobs(machine, job_bytes=0)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_steps_are_recorded_and_nothing_else_that_counts_is_changed(
    loss: str, tmp_path: Path
) -> None:
    config = TrainConfig(loss=loss)
    filled = ON_A_GPU.configure(config, data_set="cub", cache_dir=tmp_path)
    changed = {name: new for name, (_, new) in differences(config, filled).items()}
    way = "cuda_step" if loss in RECORDABLE else "cuda_graph"
    assert changed == {
        f"hardware.{way}": True,
        "hardware.workers": 1,
        "cache": "gpu",
        "cache_dir": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({"cuda_graph": True}, {"cuda_graph": True}),
        ({"compile": True}, {"compile": True, "cuda_step": True}),
        ({"precision": "bf16-mixed"}, {"precision": "bf16-mixed", "cuda_step": True}),
        ({"workers": 4}, {"workers": 4, "cuda_step": True}),
        ({"accelerator": "cpu"}, {"accelerator": "cpu"}),
        ({"devices": 2}, {"devices": 2}),
    ],
)
def test_what_a_user_sets_is_kept(given: dict[str, Any], way: dict[str, Any]) -> None:
    config = TrainConfig(hardware=HardwareConfig(**given))
    filled = ON_A_GPU.configure(config)
    assert filled.hardware == HardwareConfig(**{"workers": 1, **way})


def test_caches_follow_the_data_set_and_the_user() -> None:
    assert ON_A_GPU.configure(TrainConfig(), data_set="sop").cache == "ram"
    kept = TrainConfig(cache="ram", cache_dir="/there")
    filled = ON_A_GPU.configure(kept, data_set="cub", cache_dir=Path("/here"))
    assert (filled.cache, filled.cache_dir) == ("ram", "/there")
    assert auto_jobs(Machine(2)).configure(TrainConfig(), data_set="cub").cache == "none"


@pytest.mark.parametrize(("loss", "way"), [("c2", "cuda_step"), ("ms", "cuda_graph")])
def test_where_there_is_a_compiler_networks_are_compiled(loss: str, way: str) -> None:
    machine = Machine(16, "NVIDIA H200", (140 * GB,), mps=True, compiler=True)
    assert auto_jobs(machine).compiled
    assert not auto_jobs(replace(machine, compiler=False)).compiled
    config = TrainConfig(loss=loss)
    expected: dict[str, Any] = {"compile": True, "workers": 1, way: True}
    assert COMPILED.configure(config).hardware == HardwareConfig(**expected)
    on_the_cpu = replace(config, hardware=HardwareConfig(accelerator="cpu"))
    assert not COMPILED.configure(on_the_cpu).hardware.compile


def test_what_is_given_is_kept_at_its_default_too() -> None:
    keep = ["compile", "cuda_step", "stop.patience"]
    assert COMPILED.configure(TrainConfig(), keep=keep).hardware == HardwareConfig(workers=1)


def test_a_pass_that_changes_is_not_recorded() -> None:
    gsp = GspConfig(average_steps=100)
    assert not ON_A_GPU.configure(TrainConfig(loss="ms", gsp=gsp)).hardware.cuda_graph
    assert ON_A_GPU.configure(TrainConfig(loss="c2", gsp=gsp)).hardware.cuda_step


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_this_machine_is_looked_at() -> None:
    assert look_at_machine() == Machine(len(os.sched_getaffinity(0)))


@pytest.mark.process
def test_processes_are_spread_over_gpus(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from sumpool.system.executors.devices import take_gpu\n"
        "print(take_gpu(2, folder=Path(sys.argv[1])), flush=True); sys.stdin.read()"
    )

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "5,7"},
        )

    def taken(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    processes = [begin() for _ in range(4)]
    try:
        gpus = [taken(process) for process in processes]
        assert Counter(gpus) == {"5": 2, "7": 2}
        # The seat of one that is killed is free for the next.
        processes[0].kill()
        processes[0].wait()
        processes.append(begin())
        assert taken(processes[-1]) == gpus[0]
    finally:
        for process in processes:
            process.communicate()


def test_a_single_gpu_needs_no_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert take_gpu(1, folder=tmp_path) is None
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert list(tmp_path.iterdir()) == []
