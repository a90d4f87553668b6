"""Work waits in a line of limited length."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.testclient import TestClient

from serve.conftest import BASE
from sumpool.search import Index
from sumpool.serve import build_app
from sumpool.serve.worker import BusyError, Worker


def test_one_thread_runs_one_call_after_the_other() -> None:
    order: list[int] = []

    async def run() -> None:
        worker = Worker("test", threads=1, most=8)
        await asyncio.gather(*(worker.run(order.append, it) for it in range(8)))
        worker.close()

    asyncio.run(run())
    assert order == list(range(8))


def test_more_than_may_wait_is_refused_and_what_waits_is_done() -> None:
    async def run() -> list[object]:
        worker, go = Worker("test", threads=1, most=3), threading.Event()
        waiting = [asyncio.ensure_future(worker.run(go.wait, 10)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await worker.run(len, "x")
        go.set()
        done = await asyncio.gather(*waiting)
        assert await worker.run(len, "x") == 1
        worker.close()
        return done

    assert asyncio.run(run()) == [True] * 3


def test_errors_reach_the_caller_and_free_the_place() -> None:
    async def run() -> None:
        worker = Worker("test", threads=1, most=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await worker.run(divmod, 1, 0)
        worker.close()

    asyncio.run(run())


def test_a_busy_server_says_so_and_when_to_come_back(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise BusyError

    with TestClient(build_app(index), BASE) as client:
        monkeypatch.setattr(Worker, "run", refuse)
        for address in ("/search?image=1", "/api/search?image=1", "/picture?image=1"):
            response = client.get(address)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "5"
            assert "try again in some seconds" in response.text
