"""Scripts of benchmarks as modules, which find each other as they do when one is run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def load() -> Iterator[Callable[[str], ModuleType]]:
    """Loads a script, or a module beside the scripts, by its name."""

    def loaded(name: str) -> ModuleType:
        if name.startswith("_"):
            return importlib.import_module(name)
        # By its path: the tests have a folder of the same name.
        spec = importlib.util.spec_from_file_location("script", BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield loaded
        for name in (path.stem for path in BENCHMARKS.glob("_*.py")):
            sys.modules.pop(name, None)
