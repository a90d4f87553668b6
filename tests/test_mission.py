"""The page of the papers' contents: its files are there, its commands can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from sumpool.bench.report.published import published_scores
from sumpool.cli.entry import build_parser
from sumpool.cli.options import normalize_arguments
from sumpool.studies.catalog import STUDIES
from sumpool.training.config import flat_switches

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "mission.md").read_text(encoding="utf-8")
QUEUE = [
    line
    for name in ("mission-queue.txt", "mission-studies.txt")
    for line in (DOCS / "results" / name).read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
HEADER = "| source | what | file | command | measured | published, and the difference |"
CODE = re.compile(r"`([^`]+)`")


def rows() -> Iterator[list[str]]:
    """The rows of all tables."""
    for line in PAGE.splitlines():
        if line.startswith("| ") and line != HEADER:
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@cache
def parse() -> Callable[[str], object]:
    """A function that parses a command, and raises what is wrong with it."""
    parser, switches = build_parser(), flat_switches()

    def parsed(command: str) -> object:
        program, *arguments = shlex.split(command)
        assert program == "sumpool"
        return parser.parse_args(normalize_arguments(arguments, switches))

    return parsed


def test_every_row_is_complete_and_every_file_is_there() -> None:
    found = list(rows())
    assert len(found) > 80
    for row in found:
        assert len(row) == 6, row
        assert all(row), row
        for name in CODE.findall(row[2]):
            assert (ROOT / name).is_file(), name


def test_what_was_not_run_has_its_cost() -> None:
    for _, what, _, _, measured, _ in rows():
        if "not run" in measured:
            assert re.search(r"\d+ min", measured), what


def commands() -> list[str]:
    """The commands of the page and of the queue, each once."""
    return sorted({it for row in rows() for it in CODE.findall(row[3])} | set(QUEUE))


def test_commands_of_benchmarks_and_studies_can_be_typed() -> None:
    found = [it for it in commands() if it.split()[1] in ("bench", "study")]
    assert len(found) > 60
    for command in found:
        parse()(command)


@pytest.mark.process  # no process, but the many options of training take seconds
def test_all_other_commands_can_be_typed() -> None:
    for command in commands():
        if command.split()[1] not in ("bench", "study"):
            parse()(command)


def test_a_command_that_cannot_be_typed_is_noticed() -> None:
    for wrong in ("sumpool study none", "sumpool bench fair --data cub --poool gsp"):
        with pytest.raises(Exception, match=r"none|poool"):
            parse()(wrong)


def test_every_study_and_every_published_table_is_on_the_page() -> None:
    for study in STUDIES:
        assert re.search(rf"`sumpool study {study}[ `]", PAGE), study
    for table in {score.table[:3] for score in published_scores()} | {"3.3"}:
        assert re.search(rf"tabs?\. ([\d.]+, )*{table}", PAGE), table


def test_a_study_without_a_stored_result_is_in_the_queue() -> None:
    stored = {path.name for path in (DOCS / "results").iterdir() if path.is_dir()}
    for study in STUDIES:
        kept = any(name == study or name.startswith(f"{study}-") for name in stored)
        assert kept or any(line.startswith(f"sumpool study {study} ") for line in QUEUE), study
