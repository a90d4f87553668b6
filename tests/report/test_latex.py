import re

import pytest

from sumpool.report.latex import escape_latex
from sumpool.report.tables import Table

TABLE = Table(
    ("", "P@1", "MAP@R", "P@1"),
    [["C2, GAP", "1 ± 2", "3", "4"], ["↳ published", "5", "6", "–"], ["C2, GSP", "7", "8", "9"]],
    "50 % of a_b & $c$",
    strong={(2, 2)},
    spans=[[("", 1), ("CUB", 2), ("A_B", 1)]],
)


@pytest.mark.parametrize("sign", "&%$#_{}")
def test_what_latex_reads_as_a_command_gets_a_backslash(sign: str) -> None:
    assert escape_latex(f"a{sign}b") == f"a\\{sign}b"


def test_backslash_tilde_and_caret_become_words() -> None:
    assert escape_latex(r"\~^") == r"\textbackslash{}\textasciitilde{}\textasciicircum{}"


def test_escaping_goes_letter_by_letter() -> None:
    # A second pass over what the first one wrote would escape its braces.
    assert escape_latex(r"\{") == r"\textbackslash{}\{"


def test_the_table_has_the_rules_of_booktabs() -> None:
    lines = TABLE.latex().splitlines()
    assert lines == [
        r"\begin{table}",
        r"\centering",
        r"\caption{50 \% of a\_b \& \$c\$}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{CUB} & \multicolumn{1}{c}{A\_B} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}",
        r" & P@1 & MAP@R & P@1 \\",
        r"\midrule",
        r"C2, GAP & 1 $\pm$ 2 & 3 & 4 \\",
        r"$\hookrightarrow$ published & 5 & 6 & -- \\",
        r"\addlinespace",
        r"C2, GSP & 7 & \textbf{8} & 9 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_every_line_has_as_many_cells_as_the_header() -> None:
    for line in TABLE.latex().splitlines():
        if line.endswith(r"\\"):
            widths = [int(it) for it in re.findall(r"multicolumn\{(\d)\}", line)]
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(widths) - len(widths) == 4


def test_a_table_without_caption_is_the_tabular_alone() -> None:
    text = Table(("a", "b"), [["1", "2"]]).latex()
    assert text.startswith(r"\begin{tabular}{lr}")
    assert text.endswith(r"\end{tabular}")


def test_spans_stand_before_the_names_in_one_line_and_above_them_in_html() -> None:
    assert TABLE.markdown().splitlines()[0] == "|  | CUB P@1 | CUB MAP@R | A_B P@1 |"
    assert "CUB MAP@R" in TABLE.text().splitlines()[1]
    assert '<th colspan="2" scope="colgroup">CUB</th>' in TABLE.html()
    assert TABLE.html().count("<tr>") == 4


def test_a_row_that_goes_on_is_marked_in_html() -> None:
    assert '<tr class="under"><th scope="row">↳ published</th><td>5</td>' in TABLE.html()
    assert TABLE.html().count('class="under"') == 1


def test_spans_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="spans must cover 2 columns, got"):
        Table(("a", "b"), [["1", "2"]], spans=[[("x", 3)]])
