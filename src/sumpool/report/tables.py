"""Tables of stored numbers: as text for a terminal, as Markdown, as HTML."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; the first column names the row.

    Attributes:
        header: Names of the columns.
        rows: Rows, each as long as the header.
        caption: What is tabulated and over what is averaged.
        strong: Row and column of the cells that stand out: bold, or with a star in plain text.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: Collection[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        """Check that the table is rectangular."""
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"rows must have {len(self.header)} cells, got {list(row)}")

    def text(self) -> str:
        """The table in columns of even width, for a terminal."""
        lines = [list(self.header), *self._marked("*{}")]
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
        """The table in Markdown, without the caption."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        lines = [self.header, rule, *self._marked("**{}**")]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def html(self) -> str:
        """The table in HTML without the caption, everything in it escaped."""

        def line(tag: str, cells: Iterable[str]) -> str:
            return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

        body = "\n".join(
            f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
            for name, *cells in self._marked("<strong>{}</strong>", html.escape)
        )
        return (
            f"<table>\n<thead><tr>{line('th', self.header)}</tr></thead>\n"
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )

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
    """Mean ± sample standard deviation of the values; the mean alone for a single one.

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
