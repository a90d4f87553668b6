"""Commands of sumpool in processes of their own, which are watched and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Kill:
    """A signal to a command: to its process alone, or to its whole group."""

    after: float
    signal: signal.Signals
    group: bool = False

    def __str__(self) -> str:
        name = self.signal.name.removeprefix("SIG")
        return f"{name} to the {'group' if self.group else 'process'} after {self.after:.2f} s"


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit status (−9: killed), and what it printed."""

    status: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    hung: bool
    killed: bool
    printed: str


class Server:
    """Runs one command after the other; each forks from a process that has imported torch."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(
        self,
        argv: list[str],
        cwd: Path,
        *,
        kill: Kill | None = None,
        limit: float = 600,
        most_bytes: int | None = None,
    ) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log = cwd / "printed.txt"
        order: dict[str, Any] = {
            "argv": argv,
            "cwd": str(cwd),
            "log": str(log),
            "kill": None if kill is None else vars(kill),
            "limit": limit,
            "most_bytes": most_bytes,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ended(**answer, printed=log.read_text(encoding="utf-8", errors="replace"))
