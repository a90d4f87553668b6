"""Tables: rectangular, aligned, escaped."""

from __future__ import annotations

import pytest

from sumpool.report.tables import Table, mean_and_spread

TABLE = Table(("pooling", "MAP@R"), [["GAP", "0.5"], ["<GSP>", "0.975"]], "Two & two")


def test_text_is_aligned() -> None:
    assert TABLE.text().splitlines() == [
        "Two & two",
        "pooling  MAP@R",
        "-------  -----",
        "GAP        0.5",
        "<GSP>    0.975",
    ]


def test_markdown_has_one_line_for_each_row() -> None:
    assert TABLE.markdown().splitlines()[1:3] == ["| --- | ---: |", "| GAP | 0.5 |"]


def test_html_is_escaped() -> None:
    text = TABLE.html()
    assert "&lt;GSP&gt;" in text
    assert "<GSP>" not in text
    assert text.count("<tr>") == text.count("</tr>") == 3


def test_strong_cells_stand_out() -> None:
    strong = Table(TABLE.header, TABLE.rows, strong={(1, 1)})
    assert strong.text().splitlines()[-1] == "<GSP>    *0.975"
    assert strong.text().splitlines()[-2] == "GAP         0.5"
    assert strong.markdown().splitlines()[-1] == "| <GSP> | **0.975** |"
    assert '<th scope="row">&lt;GSP&gt;</th><td><strong>0.975</strong></td>' in strong.html()


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must have 2 cells, got"):
        Table(("a", "b"), [["1"]])


def test_spread_is_the_sample_standard_deviation() -> None:
    assert mean_and_spread([1.0, 2.0, 3.0], digits=2) == "2.00 ± 1.00"
    assert mean_and_spread([0.25], digits=0, scale=100) == "25"


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_what_has_no_mean_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="values must be finite and at least one"):
        mean_and_spread(values)
