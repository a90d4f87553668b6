"""The stored tables of benchmarks are those of the stored rows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sumpool.cli import main

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
COMMANDS = (RESULTS / "comparisons.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stored_table_is_what_its_command_writes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(command)
    assert program == "sumpool"
    assert arguments[-2] == "--file"
    stored, written = ROOT / arguments[-1], tmp_path / "compare.md"
    monkeypatch.chdir(ROOT)
    assert main([*arguments[:-1], str(written)]) == 0
    assert written.read_text(encoding="utf-8") == stored.read_text(encoding="utf-8")


def test_all_stored_rows_are_compared() -> None:
    named = {word for command in COMMANDS for word in shlex.split(command)}
    for path in RESULTS.glob("*/rows.parquet"):
        assert path.parent.relative_to(ROOT).as_posix() in named


def test_rows_of_a_benchmark_are_packed_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, packed = str(RESULTS / "ccp-fair-cub-h200"), tmp_path / "rows.parquet"
    assert main(["bench", "pack", "--out", stored, "--file", str(packed)]) == 0
    assert f"39 rows: {packed}" in capsys.readouterr().out
    tables = []
    for place in (stored, str(packed)):
        assert main(["bench", "compare", place, "--over", "gap"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert main(["bench", "pack", "--out", stored, "--file", str(packed)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main(["bench", "compare", str(packed), "--where", "nothing=1"]) == 1
    assert capsys.readouterr().err.startswith("sumpool: error: where names no option")
    assert main(["bench", "compare", str(packed), "--folds", "9"]) == 1
    assert "no finished run matches --protocol, --loss, … and --where" in capsys.readouterr().err
