"""The catalog as the table of docs/centers.md shows it; run this file to print it."""

from __future__ import annotations

from sumpool.centers import REGULARIZERS


def catalog_table() -> str:
    lines = ["| name | minimized | pairs | constant | default |", "|---|---|---|---|---|"]
    for name, recipe in REGULARIZERS.items():
        source = f"[{recipe.reference}](references.md#{recipe.reference})"
        constant = recipe.symbol or "–"
        default = "–" if recipe.lam is None else f"{recipe.lam:g}"
        lines.append(
            f"| `{name}` | {recipe.summary} {source} | {recipe.pairs} | {constant} | {default} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(catalog_table())  # noqa: T201
