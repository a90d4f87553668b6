"""What a benchmark records of its run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest


def test_the_recorded_command_has_the_arguments_that_were_given(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line = load("_machine").command_line
    monkeypatch.setattr(sys, "argv", ["ccp.py", "--rounds", "2"])
    assert command_line("/home/me/ccp.py") == "python benchmarks/ccp.py --rounds 2"
    assert command_line("/home/me/ccp.py", []) == "python benchmarks/ccp.py"
    assert command_line("ccp.py", ["--out", "a b"]) == "python benchmarks/ccp.py --out 'a b'"
