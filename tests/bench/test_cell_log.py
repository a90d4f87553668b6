"""The log of a cell: what a process says arrives there, but for what Lightning says of each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Writes a log in a process that has not imported Lightning before.
TALK = """
import logging, os, sys
from pathlib import Path

import pytest
from sumpool.bench.cell_log import redirect_output
assert "lightning" not in sys.modules
with redirect_output(Path(sys.argv[1])):
    from sumpool.training import HardwareConfig, TrainConfig
    from sumpool.training.assemble import build_fabric
    build_fabric(TrainConfig(hardware=HardwareConfig("cpu", precision="bf16-mixed")))
    logging.getLogger("sumpool.test").info("logged")
    print("printed", flush=True)
    os.write(2, b"written\\n")
print("outside")
"""


@pytest.mark.process
def test_the_log_has_all_but_what_lightning_runs_on(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    done = subprocess.run([sys.executable, "-c", TALK, str(log)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "outside\n"
    logged, *others = log.read_text().splitlines()
    assert logged.endswith("INFO logged")
    assert others == ["printed", "written"]
