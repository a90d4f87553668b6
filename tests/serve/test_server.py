"""The command: what it refuses, how it stops, and the client that asks it."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.served import served
from serve.small_index import drawing, png
from sumpool.cli import main
from sumpool.search import Index
from sumpool.serve import Client, ClientError

TOKEN = "a token of the tests, long enough"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host=0.0.0.0"], "give them a token of at least 16 characters with --token"),
        (["--host=0.0.0.0", "--token=short"], "token must have at least 16 characters, got 5"),
        (["--port=70000"], "port must be a whole number from 0 to 65535, got 70000"),
        (["--host=a.invalid", "--token=" + TOKEN], "cannot listen on a.invalid, port 8000"),
        (["--upload-mib=0"], "must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    index: Index,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUMPOOL_TOKEN", raising=False)
    try:
        status = main(["serve", str(index.folder), "--device=cpu", *options])
    except SystemExit as ended:
        status = int(str(ended.code))
    printed = capsys.readouterr().err.strip()
    assert status in (1, 2)
    assert printed.startswith("sumpool: error: ")
    assert message in printed
    assert "\n" not in printed


def test_a_port_that_is_taken_is_named(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(index.folder), "--device=cpu", f"--port={port}"]) == 1
    assert f"cannot listen on 127.0.0.1, port {port}: " in capsys.readouterr().err


def test_a_folder_without_an_index_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path), "--device=cpu"]) == 1
    assert f"{tmp_path} is not an index" in capsys.readouterr().err


def test_a_missing_extra_is_named(
    index: Index, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sumpool.serve.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(index.folder)]) == 1
    assert "serve needs uvicorn: pip install 'sumpool[search]'" in capsys.readouterr().err


@pytest.mark.process
def test_the_client_asks_a_server_that_wants_a_token_and_TERM_stops_it(
    index: Index, tmp_path: Path
) -> None:
    with served(index.folder, SUMPOOL_TOKEN=TOKEN) as server:
        client = Client(server.address, TOKEN)
        assert client.get("index")["images"] == len(index)
        expected = [it.id for it in index.search(3, 4)]
        assert [it["id"] for it in client.search(3, 4)] == expected
        image, box = drawing(1, 90), (2, 3, 40, 30)
        file = tmp_path / "query.png"
        image.save(file)
        expected = [it.id for it in index.search(image, 4, box=box, where={"label": "square"})]
        for query in (file, png(image)):
            found = client.search(query, 4, box=box, label="square")
            assert [it["id"] for it in found] == expected
        with pytest.raises(ClientError, match="k must be a whole number from 1 to 200, got '0'"):
            client.search(3, 0)
        with pytest.raises(ClientError, match="a token is required"):
            Client(server.address).get("index")
        assert server.stop(signal.SIGTERM) == 0
        assert server.log == ["stopped\n", ""]
        with pytest.raises(ClientError, match="does not answer"):
            client.get("index")


@pytest.mark.process
def test_a_request_that_runs_is_answered_before_INT_ends_the_server(index: Index) -> None:
    with served(index.folder) as server:
        opened = socket.create_connection(re.findall(r"//(.*):(\d+)", server.address)[0])
        content, answers = png(drawing(2, 91)), []
        head = f"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}"
        opened.sendall(f"{head}\r\n\r\n".encode() + content[:100])
        waiting = threading.Thread(target=lambda: answers.append(opened.recv(15)))
        waiting.start()
        with urllib.request.urlopen(f"{server.address}/api/index"):
            server.process.send_signal(signal.SIGINT)
        opened.sendall(content[100:])
        waiting.join(30)
        opened.close()
        assert answers == [b"HTTP/1.1 200 OK"]
        assert server.wait() == 0
        assert server.log == ["stopped\n", ""]


@pytest.mark.parametrize(
    ("query", "answer", "complaint"),
    [
        (0, b"hello", "gave no answer in JSON"),
        (0, b"[]", "gave no JSON object"),
        (0, b"[" * 10**5, "gave no answer in JSON"),
        (0, b"9" * 5000, "gave no answer in JSON"),
        (0, b"{}", "gave no results: it may be another server"),
        (0, None, "does not answer: Remote end closed connection"),
        (b"image", None, "does not answer: the upload may be larger than it accepts"),
    ],
)
def test_another_server_is_recognized(
    query: int | bytes, answer: bytes | None, complaint: str
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if answer is not None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(ClientError, match=complaint):
            Client(f"http://127.0.0.1:{server.server_port}").search(query)
        thread.join()


@pytest.mark.parametrize("query", [2.7, np.float32(2), None, bytearray(b"12")])
def test_what_is_no_query_is_not_taken_for_an_id(query: Any) -> None:
    with pytest.raises(TypeError, match=f"query must be .*, got {type(query).__name__}"):
        Client("http://127.0.0.1:1").search(query)


def test_what_cannot_be_sent_is_not_blamed_on_the_server() -> None:
    for address in ("127.0.0.1:8000", "localhost:8000", "photos", "ftp://photos", "http://:8000"):
        with pytest.raises(ValueError, match=f"address must be like http://.*, got '{address}'"):
            Client(address)
    with pytest.raises(ValueError, match="Port could not be cast to integer value as 'port'"):
        Client("http://127.0.0.1:port")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ValueError, match="Invalid header value"):
            Client(address, "a\ntoken").search(0)
