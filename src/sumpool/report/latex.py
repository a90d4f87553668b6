"""Tables in LaTeX, with the rules of booktabs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

#: Special characters of LaTeX, and characters that its fonts only have in math mode.
_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "μ": r"$\mu$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "↳": r"$\hookrightarrow$",
}
#: Prefix of the name of a row that continues the one above.
UNDER = "↳"


def escape_latex(text: str) -> str:
    r"""Escape the special characters of ``text`` for LaTeX.

    Example:
        >>> print(escape_latex("50 % of a_b & 0.3 ± 0.1"))
        50 \% of a\_b \& 0.3 $\pm$ 0.1
    """
    return "".join(_SIGNS.get(sign, sign) for sign in text)


def latex_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    strong: Collection[tuple[int, int]] = (),
    spans: Sequence[Sequence[tuple[str, int]]] = (),
) -> str:
    """Format a table in LaTeX, which requires booktabs.

    Args:
        header: Names of the columns.
        rows: The cells. A row whose name begins with ↳ continues the one above.
        caption: Caption; without one, only the ``tabular`` is returned.
        strong: Row and column of the cells in bold.
        spans: Lines above the header: names, each with the number of columns it covers.
    """
    parts = (
        [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(caption)}}}"]
        if caption
        else []
    )
    parts += [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule"]
    for line in spans:
        parts += _span(line)
    parts += [_line(escape_latex(name) for name in header), r"\midrule"]
    grouped = any(row[0].startswith(UNDER) for row in rows)
    for number, row in enumerate(rows):
        if grouped and number and not row[0].startswith(UNDER):
            parts.append(r"\addlinespace")
        cells = (
            rf"\textbf{{{escape_latex(cell)}}}" if (number, place) in strong else escape_latex(cell)
            for place, cell in enumerate(row)
        )
        parts.append(_line(cells))
    parts += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*parts, r"\end{table}"] if caption else parts)


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _span(line: Sequence[tuple[str, int]]) -> list[str]:
    """The names above their columns, and a rule below each."""
    cells, rules, first = [], [], 1
    for name, width in line:
        if name:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(name)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        else:
            cells.extend([""] * width)
        first += width
    return [_line(cells), " ".join(rules)] if rules else []
