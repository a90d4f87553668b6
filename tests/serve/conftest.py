"""A served collection, shared by all tests: nothing in it changes, except for uploads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from serve.small_index import build_index
from sumpool.search import Index
from sumpool.serve import build_app

BASE = "http://127.0.0.1:8000"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def client(index: Index) -> Iterator[TestClient]:
    with TestClient(build_app(index), BASE, follow_redirects=False) as started:
        yield started
