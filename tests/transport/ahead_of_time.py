"""Kernels compiled for a GPU that need not be there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def compiled(program: str, cases: Sequence[object]) -> int:
    """Run ``program``, which compiles ``CASES`` and prints how many there were; that number.

    It runs in a process of its own, since the test run may have asked for Triton's interpreter.
    """
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", f"CASES = {list(cases)!r}\n{program}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split("compiled ")[1])
