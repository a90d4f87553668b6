"""Write results to disk while measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sumpool.system.files import write_atomic


def write(out: Path, results: dict[str, Any], table: str) -> None:
    """Write results.json and table.md to the folder ``out``, each atomically."""
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    for name, content in (("results.json", text), ("table.md", table)):
        write_atomic(out / name, content.encode())
