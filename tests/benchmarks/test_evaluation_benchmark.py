"""The evaluation benchmark runs, its contenders agree, and it says what could not run."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

NEEDS = {
    "sumpool-faiss": "faiss",
    "pytorch-metric-learning": "faiss",
    "open-metric-learning": "oml",
    "open-metric-learning-rows": "oml",
}


@pytest.fixture(scope="module")
def modules(load: Callable[[str], ModuleType]) -> dict[str, ModuleType]:
    return {name: load(name) for name in ("_contenders", "_retrieval_sets", "evaluation")}


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_a_run_stores_seconds_memory_and_answers(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another that cannot be there, whatever is installed.
    monkeypatch.setitem(modules["_contenders"].CONTENDERS, "nobody", lambda threads: None)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        chosen = ["--sets", "tiny", "--contenders", "sumpool", "nobody"]
        modules["evaluation"].main([*chosen, "--threads", "1", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["complete"]
    assert results["command"].startswith("python benchmarks/evaluation.py --sets tiny")
    assert results["machine"]["torch"] == torch.__version__
    ours, nobody = results["rows"]
    assert len(ours["seconds"]) == 2
    assert all(s > 0 for s in ours["seconds"])
    assert 0 <= ours["metric_seconds"] < ours["median_seconds"]
    assert ours["peak_resident"] >= ours["resident_before"] > 10**8
    assert 0 < ours["answer"]["mean_average_precision_at_r"] < 1
    assert ours["times_ours"] == 1
    assert "KeyError: 'nobody'" in nobody["skipped"]
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert printed.getvalue().startswith(table.rstrip("\n"))
    assert "| nobody | failed with status 1" in table
    lines = [line for line in table.splitlines() if line.startswith("|") and "sumpool" in line]
    assert {line.count("|") for line in lines} == {9}


@pytest.mark.parametrize("name", [*NEEDS, "sumpool"])
def test_contenders_give_the_same_answers(modules: dict[str, ModuleType], name: str) -> None:
    contenders, sets = modules["_contenders"], modules["_retrieval_sets"]
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason="install sumpool[bench]", exc_type=ImportError)
    vectors, labels = sets.draw(sets.SETS["tiny"], 16)
    searching: list[float] = []
    answer = contenders.CONTENDERS[name](1)(vectors, labels, searching)
    from sumpool.evaluation import retrieval_metrics

    truth = retrieval_metrics(vectors, labels)
    assert answer == pytest.approx({it: truth[it] for it in answer}, abs=2e-6)
    assert set(answer) == set(contenders.NAMES)
    assert len(searching) == (0 if name.startswith("open") else 1)


def test_what_is_not_installed_or_too_large_is_skipped_with_the_reason(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    contenders = modules["_contenders"]
    options = {"dimensions": 8, "threads": 1, "repeats": 1, "device": "cpu"}

    def missing(threads: int) -> Any:
        raise ImportError("no module named rival")

    monkeypatch.setitem(contenders.CONTENDERS, "rival", missing)
    answer = contenders.run(contender="rival", set="tiny", **options)
    assert answer == {"skipped": "not installed: no module named rival; install sumpool[bench]"}
    monkeypatch.setitem(contenders.CONTENDERS, "open-metric-learning", lambda threads: None)
    monkeypatch.setattr(contenders, "available_bytes", lambda: 20 * 10**9)
    answer = contenders.run(contender="open-metric-learning", set="sop", **options)
    assert answer == {"skipped": "needs about 22 GB, 20 GB are free"}


@pytest.mark.parametrize("name", ["cub", "six", "tiny"])
def test_sets_have_the_sizes_they_are_named_for(modules: dict[str, ModuleType], name: str) -> None:
    sets = modules["_retrieval_sets"]
    chosen = sets.SETS[name]
    vectors, labels = sets.draw(chosen, 4)
    sizes = labels.bincount()
    assert vectors.shape == (chosen.items, 4)
    assert len(sizes) == chosen.classes
    assert (int(sizes.min()), int(sizes.max())) == (chosen.smallest, chosen.largest)
    assert torch.equal(sets.draw(chosen, 4)[0], vectors)


def test_targets_are_held_against_the_fastest_other(modules: dict[str, ModuleType]) -> None:
    evaluation = modules["evaluation"]
    rows = [evaluation.empty_row("sop", it, 128) for it in ("sumpool", "sumpool-faiss", "a", "b")]
    answer = dict.fromkeys(evaluation.NAMES, 0.5)
    for row, seconds in zip(rows, (10.0, 12.0, 90.0, 50.0), strict=True):
        measured = {"seconds": [seconds], "search_seconds": [seconds - 0.5], "answer": answer}
        evaluation.add(row, measured | {"peak_resident": 10**9})
    results: dict[str, Any] = {"rows": rows}
    evaluation.finish(results, "cpu")
    found = {target["what"]: (target["value"], target["met"]) for target in results["targets"]}
    assert found == {
        "sop: the fastest other over ours": (5.0, True),
        "sop: peak memory, GB": (1.0, True),
        "sop: all but the search, s": (0.5, True),
        "largest difference between answers": (0.0, True),
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sets", "imagenet"], "invalid choice: 'imagenet'"),
        (["--contenders", "sklearn"], "invalid choice: 'sklearn'"),
        (["--quick", "--sets", "cub"], "--quick has sets of its own"),
    ],
)
def test_unusable_arguments_are_refused(
    modules: dict[str, ModuleType],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    with pytest.raises(SystemExit):
        modules["evaluation"].main(arguments)
    assert complaint in capsys.readouterr().err
