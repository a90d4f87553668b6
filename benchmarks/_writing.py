"""Results on disk while they are measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(out: Path, results: dict[str, Any], table: str) -> None:
    """Write results.json and table.md to the folder ``out``, each whole or not at all."""
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    for name, content in (("results.json", text), ("table.md", table)):
        aside = out / f".{name}.part"
        aside.write_text(content, encoding="utf-8")
        os.replace(aside, out / name)
