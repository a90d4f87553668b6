"""Processes that train in parallel on command from parallelism.py."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

SCRIPT = Path(__file__).with_name("_parallelism_process.py")
#: Seconds between the command to run and the start.
NOTICE = 0.3


class GroupError(Exception):
    """A process failed or did not answer; the message has its last line of output."""


class Group:
    """``count`` processes with a run each.

    Args:
        count: Number of processes.
        options: Options of each process, see _parallelism_process.py.
        logs: Folder for their stderr.
        patience: Seconds to wait for an answer.
    """

    def __init__(
        self, count: int, options: dict[str, Any], logs: Path, *, patience: float = 300.0
    ) -> None:
        self._patience = patience
        self._logs = [logs / f"process-{index}.log" for index in range(count)]
        self._processes: list[subprocess.Popen[str]] = []
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(options["threads"]),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # the processes use the cores
        }
        for log in self._logs:
            with log.open("w") as file:
                process = subprocess.Popen(
                    [sys.executable, str(SCRIPT), json.dumps(options)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    bufsize=1,
                    env=environment,
                )
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        end = time.monotonic() + 10
        for process in self._processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def loaded(self) -> dict[str, Any]:
        """Wait until all have loaded their images; return a description of the machine."""
        return self._answers("loaded", range(len(self._processes)))[0]

    def build(self, hardware: dict[str, Any]) -> list[dict[str, Any]]:
        """Build a run in all processes and warm it up; return the memory of each.

        The first one goes ahead, so that the others find its compiled code on disk.
        """
        command = {"do": "build", "hardware": hardware}
        first = self._exchange(command, "ready", slice(0, 1))
        return first + self._exchange(command, "ready", slice(1, None))

    def run(self, count: int, seconds: float) -> list[float]:
        """Train in the first ``count`` processes at once; return the steps per second of each."""
        begin = time.time() + NOTICE
        command = {"do": "run", "begin": begin, "end": begin + seconds}
        answers = self._exchange(command, "ran", slice(0, count))
        return [it["steps"] / it["seconds"] for it in answers]

    def drop(self) -> None:
        """Discard the run in all processes."""
        self._send({"do": "drop"}, range(len(self._processes)))

    def _exchange(self, command: dict[str, Any], event: str, which: slice) -> list[dict[str, Any]]:
        indices = range(len(self._processes))[which]
        self._send(command, indices)
        return self._answers(event, indices)

    def _send(self, command: dict[str, Any], indices: Sequence[int]) -> None:
        for index in indices:
            process = self._processes[index]
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(command) + "\n")
                process.stdin.flush()
            except BrokenPipeError as error:
                raise GroupError(self._last_words(index)) from error

    def _answers(self, event: str, indices: Sequence[int]) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + self._patience
        with selectors.DefaultSelector() as selector:
            for index in indices:
                output = self._processes[index].stdout
                assert output is not None
                selector.register(output, selectors.EVENT_READ, index)
            while len(found) < len(indices):
                ready = selector.select(max(0.0, end - time.monotonic()))
                if not ready:
                    late = sorted(set(indices) - set(found))
                    raise GroupError(f"no answer of {late} in {self._patience:.0f} s")
                for key, _ in ready:
                    found[key.data] = self._answer(key.data, event)
                    selector.unregister(key.fileobj)
        return [found[index] for index in indices]

    def _answer(self, index: int, event: str) -> dict[str, Any]:
        output = self._processes[index].stdout
        assert output is not None
        line = output.readline()  # one answer per command, so nothing is buffered
        if not line:
            raise GroupError(self._last_words(index))
        answer: dict[str, Any] = json.loads(line)
        if answer["event"] != event:
            raise GroupError(answer.get("error", f"{answer['event']} came in place of {event}"))
        return answer

    def _last_words(self, index: int) -> str:
        said = self._logs[index].read_text(errors="replace").strip().splitlines()
        return f"process {index} ended: {said[-1] if said else 'without a word'}"
