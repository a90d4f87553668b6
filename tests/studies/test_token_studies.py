"""The token and margins studies: what is stored, and that nothing is computed twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.studies.catalog import STUDIES, get_study
from sumpool.studies.shared.token_problem import TokenSettings, draw_samples
from sumpool.studies.shared.token_training import train
from sumpool.studies.tokens import experiment as tokens
from sumpool.studies.tokens import margins
from sumpool.system.rows import read_arrays, read_rows

TINY = {"epoch_batches": 1, "max_epochs": 2, "validation_per_class": 2, "test_per_class": 4}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Makes quick runs tiny; lists every training: the method and its seeds."""
    calls: list[tuple[str, tuple[int, ...]]] = []

    def counted(
        settings: TokenSettings, method: str, seeds: Sequence[int], *rest: Any
    ) -> Iterator[Any]:
        calls.append((method, tuple(seeds)))
        return train(settings, method, seeds, *rest)

    monkeypatch.setattr(tokens, "train", counted)
    monkeypatch.setattr(tokens, "QUICK", TINY)
    monkeypatch.setattr(margins, "QUICK", TINY)
    monkeypatch.setattr(margins, "MARGINS", (0.05, 0.2))
    return calls


def test_only_missing_seeds_are_trained(
    tmp_path: Path, trained: list[tuple[str, tuple[int, ...]]]
) -> None:
    first = tokens.run(tmp_path, seeds=2, quick=True, progress=False)
    assert trained == [("GAP", (0, 1)), ("GSP", (0, 1))]
    assert tokens.run(tmp_path, seeds=2, quick=True, progress=False) == first
    assert len(trained) == 2
    more = tokens.run(tmp_path, seeds=3, quick=True, progress=False)
    assert trained[2:] == [("GAP", (2,)), ("GSP", (2,))]
    assert [row for row in more if row.cell["seed"] < 2] == first
    assert len(read_rows(tmp_path)) == 6


def test_a_torn_row_is_trained_again(
    tmp_path: Path, trained: list[tuple[str, tuple[int, ...]]], caplog: pytest.LogCaptureFixture
) -> None:
    tokens.run(tmp_path, seeds=2, quick=True, progress=False)
    stored = tmp_path / "rows.jsonl"
    stored.write_bytes(stored.read_bytes()[:-40])
    tokens.run(tmp_path, seeds=2, quick=True, progress=False)
    assert trained[2:] == [("GSP", (1,))]
    assert "the last line is torn, its cell is computed again" in caplog.text
    assert len(read_rows(tmp_path)) == 4


def test_a_cell_holds_all_that_its_figure_needs(
    tmp_path: Path, trained: list[tuple[str, tuple[int, ...]]]
) -> None:
    threads = torch.get_num_threads()
    rows = tokens.run(tmp_path, seeds=1, quick=True, progress=False)
    assert torch.get_num_threads() == threads
    for row in rows:
        arrays = read_arrays(tmp_path, row)
        assert arrays["tokens"].shape == (68, 2)
        assert arrays["prototypes"].shape == ((16, 2) if row.cell["method"] == "GSP" else (0, 2))
        assert arrays["embeddings"].shape == (16 * 4, 2)
        for kind in ("hull", "token_hull"):
            assert len(arrays[f"{kind}_sizes"]) == 16
            assert arrays[f"{kind}_sizes"].sum() == len(arrays[f"{kind}_corners"])
        assert len(arrays["history"]) == row.metrics["epochs"] == 2
        assert row.settings["eps"] == 20
        assert set(row.versions) == {"python", "sumpool", "torch", "numpy"}
        assert row.duration_s > 0


def test_margins_are_cells_of_their_own(
    tmp_path: Path, trained: list[tuple[str, tuple[int, ...]]]
) -> None:
    rows = margins.run(tmp_path, seeds=1, quick=True, progress=False)
    assert len(trained) == 2 * 2
    assert sorted({row.cell["margin"] for row in rows}) == [0.05, 0.2]
    margins.run(tmp_path, seeds=1, quick=True, progress=False)
    assert len(trained) == 2 * 2


def test_average_pooling_is_active_in_its_own_and_all_shared_tokens() -> None:
    settings = TokenSettings()
    (samples,) = draw_samples(settings, 64, torch.Generator().manual_seed(0))
    active = tokens.active_tokens(settings, samples, torch.full(samples.shape, 1 / 50))
    expected = torch.zeros(16, 68, dtype=torch.bool)
    expected[:, 64:] = True
    for label in range(16):
        expected[label, 4 * label : 4 * label + 4] = True
    assert torch.equal(active, expected)


def test_tokens_without_weight_are_not_active() -> None:
    settings = TokenSettings()
    (samples,) = draw_samples(settings, 8, torch.Generator().manual_seed(0))
    of_class = (samples < 64).float()
    active = tokens.active_tokens(settings, samples, of_class / of_class.sum(-1, keepdim=True))
    assert not active[:, 64:].any()
    assert (active.sum(1) == 4).all()


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_study_refuses_no_seeds(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        get_study(name).run(tmp_path, seeds=0, quick=True)


def test_an_unknown_study_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"study must be one of glyphs, toy, .*, got 'cub'"):
        get_study("cub")
