"""The files that a page is made of, nearly right: a run, or an error of one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import damaged, is_read_or_refused
from report.fake_runs import make_run
from sumpool.report.run.files import read_run

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "run"
    make_run(path)
    return path


@pytest.mark.parametrize(
    "pattern",
    ["run.json", "config.yaml", "log.csv", "validation.csv", "**/metrics.json", "exhibits/*.json"],
)
@settings(max_examples=25)
@given(data=st.data())
def test_a_run_is_read_or_refused(pattern: str, folder: Path, data: st.DataObject) -> None:
    path = next(folder.glob(pattern))
    sound = path.read_bytes()
    try:
        path.write_bytes(data.draw(damaged(sound)))
        assert is_read_or_refused(lambda: read_run(folder))
    finally:
        path.write_bytes(sound)
