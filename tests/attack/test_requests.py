"""Hostile requests neither end a server, nor read its files, nor run a script."""

from __future__ import annotations

import errno
import http.client
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attack.attacks import Attacks
from attack.hostile_requests import LEAKS, SCRIPTS, Hostile, hostile_requests
from serve.served import Served, served
from serve.small_index import build_index

pytestmark = pytest.mark.process

REQUESTS = 200
#: Requests at once, in the second round.
TOGETHER = 20
#: How a page begins.
PAGE = "<!DOCTYPE html>"
#: Bytes that the server may take.
MOST_BYTES = 4 * 2**30


def test_hostile_requests_do_no_harm(tmp_path: Path, attacks: Attacks) -> None:
    index = build_index(tmp_path)
    with served(index.folder) as server:
        before = _ask(server, Hostile("", target="/api/search?image=3&k=5"))
        requests = list(hostile_requests(REQUESTS))
        for request in requests:
            _note(attacks, request, *_ask(server, request), tmp_path)
        with ThreadPoolExecutor(TOGETHER) as pool:
            answers = list(pool.map(lambda it: _ask(server, it), requests))
        for request, answer in zip(requests, answers, strict=True):
            _note(attacks, request, *answer, tmp_path, " at once")
        assert _ask(server, Hostile("", target="/api/search?image=3&k=5")) == before
        assert json.loads(before[1])["results"]
        assert _ask(server, Hostile("", target="/"))[1].startswith(PAGE)
        peak = Path(f"/proc/{server.process.pid}/status")
        if peak.exists():
            kib = int(re.findall(r"VmHWM:\s+(\d+)", peak.read_text())[0])
            attacks.note("memory", f"peak of {kib / 2**20:.1f} GiB", "within its limit")
            assert kib * 1024 < MOST_BYTES
        assert server.stop() == 0
        assert "Traceback" not in "".join(server.log), server.log
    attacks.check()


def _ask(server: Served, request: Hostile) -> tuple[int, str]:
    """Status and text of the answer; 0 if the connection was closed without one."""
    host, port = re.findall(r"//(.*):(\d+)", server.address)[0]
    if request.raw is not None:
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            try:
                connection.sendall(request.raw)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except OSError as error:
                if isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN:
                    return 0, ""
                raise
        status = re.match(rb"HTTP/1.1 (\d+)", answer)
        return int(status[1]) if status else 0, answer.decode("latin-1")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        connection.putrequest(request.method, request.target, skip_host="Host" in request.headers)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        if request.body is not None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        return response.status, response.read().decode("latin-1")
    except (ConnectionError, http.client.RemoteDisconnected):
        return 0, ""
    finally:
        connection.close()


def _note(
    attacks: Attacks, request: Hostile, status: int, text: str, folder: Path, how: str = ""
) -> None:
    page = SCRIPTS if text.startswith(PAGE) else ()  # in JSON it is text
    found = [it for it in (*LEAKS, *page, str(folder)) if it in text]
    if status >= 500 and status != 503:
        attacks.fail(request.kind + how, str(request), f"status {status}: {text[-200:]}")
    elif found:
        attacks.fail(request.kind + how, str(request), f"the answer has {found[0]!r}")
    else:
        outcome = {0: "closed", 2: "answered", 3: "answered", 4: "refused", 5: "busy"}
        attacks.note(request.kind + how, str(request), outcome[status // 100])
