"""Runs commands of sumpool in forked processes: torch is imported once, not once per command.

Each line of stdin is an order, each line of stdout its answer; see :class:`attack.commands.Server`.
"""

from __future__ import annotations

import json
import multiprocessing.util
import os
import resource
import signal
import sys
import time
import traceback
from typing import Any


def run(order: dict[str, Any], begun: int) -> None:
    os.setsid()
    os.chdir(order["cwd"])
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdin.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    most = order["most_bytes"]
    if most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    status = 1
    try:
        from sumpool.cli import main

        os.write(begun, b"!")
        status = main(order["argv"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        multiprocessing.util._exit_function()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def answer(order: dict[str, Any]) -> dict[str, Any]:
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        run(order, begun)
    os.close(begun)
    os.read(ready, 1)  # from here on it can be killed as a command can
    os.close(ready)
    begun = time.monotonic()
    kill, hung = order["kill"], False
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        passed = time.monotonic() - begun
        if ended:
            break
        if kill is not None and passed >= kill["after"]:
            (os.killpg if kill["group"] else os.kill)(child, kill["signal"])
            kill = None
        if passed > order["limit"] and not hung:
            hung = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": passed,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": 1024 * usage.ru_maxrss,
        "hung": hung,
        "killed": order["kill"] is not None and kill is None,
    }


def serve() -> None:
    # All that commands import on first use, so that each one forks with it.
    import matplotlib.figure  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.io  # noqa: F401
    import torch

    import sumpool.bench
    import sumpool.cli.inputs
    import sumpool.evaluation.gallery
    import sumpool.studies.page
    import sumpool.training.run  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
