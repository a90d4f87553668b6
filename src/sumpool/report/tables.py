"""Tables as plain text, Markdown, HTML or LaTeX."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sumpool.report.html_page import render_part
from sumpool.report.latex import latex_table


@dataclass(frozen=True)
class Table:
    """A table of formatted cells; the first column names the row.

    Attributes:
        header: Names of the columns.
        rows: Rows, each as long as the header; one that begins with ↳ continues the one above.
        caption: What the table shows, and what it averages over.
        strong: Row and column of the highlighted cells: bold, or with a star in plain text.
        spans: Lines above the header, from the top: names, each with the number of columns that it
            covers. Plain text and Markdown, which have a single line, prepend them to the header.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: Collection[tuple[int, int]] = ()
    spans: Sequence[Sequence[tuple[str, int]]] = ()

    def __post_init__(self) -> None:
        """Check that the table is rectangular."""
        for line in self.spans:
            if sum(width for _, width in line) != len(self.header):
                raise ValueError(f"spans must cover {len(self.header)} columns, got {list(line)}")
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"rows must have {len(self.header)} cells, got {list(row)}")

    def text(self) -> str:
        """Format the table as aligned columns, for a terminal."""
        lines = [self._flat_header(), *self._marked("*{}")]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        body = [
            "  ".join(
                cell.rjust(width) if index else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.caption, *body] if self.caption else body)

    def markdown(self) -> str:
        """Format the table in Markdown, without the caption."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        rows = self._marked("**{}**", lambda cell: cell.replace("|", r"\|"))
        lines = [[name.replace("|", r"\|") for name in self._flat_header()], rule, *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def html(self) -> str:
        """Format the table in HTML without the caption; the text is escaped."""
        return render_part("table_of", self)

    def latex(self) -> str:
        """Format the table in LaTeX with its caption; the text is escaped. Requires booktabs."""
        return latex_table(
            self.header, self.rows, caption=self.caption, strong=self.strong, spans=self.spans
        )

    def _flat_header(self) -> list[str]:
        above = [[name for name, width in line for _ in range(width)] for line in self.spans]
        columns = zip(*above, self.header, strict=True)
        return [" ".join(name for name in names if name) for names in columns]

    def _marked(
        self, mark: str, written: Callable[[str], str] = lambda cell: cell
    ) -> list[list[str]]:
        return [
            [
                mark.format(written(cell)) if (line, column) in self.strong else written(cell)
                for column, cell in enumerate(row)
            ]
            for line, row in enumerate(self.rows)
        ]


def mean_and_spread(values: Sequence[float], digits: int = 3, scale: float = 1.0) -> str:
    """Format mean ± sample standard deviation of the values; only the mean for a single one.

    Example:
        >>> mean_and_spread([0.5, 0.7]), mean_and_spread([0.5], digits=1, scale=100)
        ('0.600 ± 0.141', '50.0')
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"values must be finite and at least one, got {list(values)}")
    scaled = [scale * value for value in values]
    mean = f"{statistics.fmean(scaled):.{digits}f}"
    if len(scaled) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(scaled):.{digits}f}"
