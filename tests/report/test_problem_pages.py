"""The page of a run with chance-constrained proxies: its problems in curve, figures and table."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from report.fake_runs import PageReader, make_run
from sumpool.report.run import curves
from sumpool.report.run.ccp_problems import problem_note, problem_pictures, problem_table
from sumpool.report.run.curves import run_pictures
from sumpool.report.run.files import read_run
from sumpool.report.run.page import write_run_page
from sumpool.system.files import StoreError

HEADER = (
    "problem,first_step,last_step,best_step,value,covering_radius,spread,violation_rate,"
    "violation_bound,drift,travel"
)


def problem_lines(count: int, length: int = 10) -> list[str]:
    """Lines of problems that cover better and better."""
    return [
        f"{it},{length * (it - 1)},{length * it},{length * it - 5},{0.2 + 0.01 * it},"
        f"{1 / it},{0.3 + 0.1 / it},{0.1 / it},{0.4 / it},{2.5 / it},{0.05 / it}"
        for it in range(1, count + 1)
    ]


def add_problems(folder: Path, lines: list[str]) -> Path:
    (folder / "problems.csv").write_bytes("".join(f"{it}\r\n" for it in [HEADER, *lines]).encode())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_problems_are_read_by_their_number(folder: Path) -> None:
    first, second, third = problem_lines(3)
    again = second.replace("0.22", "0.5")
    problems = read_run(add_problems(folder, [first, second, third, again])).problems
    np.testing.assert_array_equal(problems["problem"], [1, 2, 3])
    np.testing.assert_allclose(problems["value"], [0.21, 0.5, 0.23])


@pytest.mark.usefixtures("undrawn")
def test_the_page_tells_of_every_problem(folder: Path) -> None:
    page = write_run_page(add_problems(folder, problem_lines(4))).read_text()
    read = PageReader(page)
    assert '<section id="problems">' in page
    assert "#problems" in read.anchors
    assert "4 proxy problems were solved, of 10 steps in the median" in read.text
    assert any("Bands, with numbers above them" in alt for alt in read.alts)
    assert "covering radius and spread of a class's proxies from problem to problem." in read.alts
    assert "share of pairs and its Markov bound from problem to problem." in read.alts
    rows = dict(re.findall(r'<tr><th scope="row">(\d)</th>(.*?)</tr>', page))
    assert re.findall("<td>(.*?)</td>", rows["2"]) == [
        "10", "20", "15", "22.0", "0.500", "0.350", "5.00", "20.00", "1.250", "0.025",
    ]  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_problems_is_shown_without_them(folder: Path) -> None:
    page = write_run_page(folder).read_text()
    assert read_run(folder).problems == {}
    assert "#problems" not in page
    add_problems(folder, [])  # none is solved yet
    assert write_run_page(folder).read_text() == page


@pytest.mark.drawn
def test_one_problem_is_enough(folder: Path) -> None:
    run = read_run(add_problems(folder, problem_lines(1)))
    assert len(problem_pictures(run.problems)) == 2
    assert "1 proxy problem was solved, of 10 steps" in problem_note(run.problems)


@pytest.mark.parametrize("lengths", [[1] * 60, [1] * 1500, [500, 300, 100, 25, 25, 25, 400], [9]])
def test_numbers_of_problems_do_not_overlap(
    folder: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "picture", lambda figure, _: figures.append(figure))
    ends = np.cumsum(lengths)
    lines = [
        f"{it},{end - length},{end},{end},0.2,0.5,0.3,0.1,0.4,1,0.1"
        for it, (length, end) in enumerate(zip(lengths, ends, strict=True), 1)
    ]
    run_pictures(read_run(add_problems(folder, lines)))
    (numbers,) = (texts for it in figures if (texts := it.axes[0].texts))
    figures[1].draw_without_rendering()
    boxes = [it.get_window_extent() for it in numbers]
    assert numbers[0].get_text() == "1"
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_what_was_not_measured_is_a_dash_or_left_out(folder: Path) -> None:
    lines = ["1,0,10,5,0.2,,0.3,,,,", "2,10,20,15,0.3,0.5,0.2,,,,"]
    problems = read_run(add_problems(folder, lines)).problems
    table = problem_table(problems)
    assert table.rows[0][table.header.index("covering radius")] == "–"
    assert "bound [%]" not in table.header
    assert len(problem_pictures(problems)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("problem,value\n1,0.5\n", r"problems\.csv is damaged: .*names no first_step"),
        (f"{HEADER}\n1,0,10,x,0,0,0,0,0,0,0\n", r"line 2 of .*problems\.csv is damaged: '1,0,10,x"),
        (f"{HEADER}\n1,,10,5,0,0,0,0,0,0,0\n", r"line 2 of .*problems\.csv is damaged"),
        (f"{HEADER}\n1,0,10\n", r"line 2 of .*problems\.csv is damaged"),
    ],
)
def test_a_damaged_file_of_problems_is_named(folder: Path, text: str, said: str) -> None:
    (folder / "problems.csv").write_text(text)
    with pytest.raises(StoreError, match=said):
        read_run(folder)


def test_a_torn_last_problem_is_left_out_and_noted(folder: Path) -> None:
    path = add_problems(folder, problem_lines(3)) / "problems.csv"
    path.write_bytes(path.read_bytes()[:-6])
    run = read_run(folder)
    np.testing.assert_array_equal(run.problems["problem"], [1, 2])
    assert run.notes == ("problems.csv: the last line is torn and left out.",)
