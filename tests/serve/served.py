"""``sumpool serve`` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Served:
    """A running server.

    Attributes:
        address: Where it listens, without a slash at the end.
        process: Its process.
        log: What it printed to standard error, once it has ended.
    """

    address: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        self.log += self.process.communicate(timeout=60)
        return self.process.returncode


@contextmanager
def served(index: Path, *options: str, **environment: str) -> Iterator[Served]:
    """A server of ``index`` at a free port, stopped in the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sumpool", "serve", str(index), "--port=0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at (http://\S+?)/", line)
        assert found is not None, line + process.communicate(timeout=60)[1]
        yield Served(found[1], process)
    finally:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()
