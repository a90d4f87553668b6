"""Description of the machine and the settings of a measurement."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

#: Environment variables that affect speed.
VARIABLES = ("SUMPOOL_FUSED", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_LAUNCH_BLOCKING")


def machine(device: torch.device) -> dict[str, Any]:
    """Describe the machine and its software."""
    cpu = platform.processor() or platform.machine()
    try:
        listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        cpu = next(x.split(":")[1].strip() for x in listing.splitlines() if "Model name" in x)
    except (OSError, subprocess.CalledProcessError, StopIteration):
        pass
    out: dict[str, Any] = {
        "device": device.type,
        "device_name": f"{cpu}, threads: {torch.get_num_threads()}",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": None,
    }
    try:
        import triton

        out["triton"] = triton.__version__
    except ImportError:
        pass
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        out |= {
            "device_name": properties.name,
            "device_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cudnn": torch.backends.cudnn.version(),
        }
    return out


def command_line(script: str, arguments: Sequence[str] | None = None) -> str:
    """Return the command that runs ``script`` with ``arguments``; None for those of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *given])


def flags() -> dict[str, Any]:
    """Return the current settings that affect speed and precision."""
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        **{name: os.environ.get(name) for name in VARIABLES},
    }
