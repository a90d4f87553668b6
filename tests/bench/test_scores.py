import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from sumpool.bench.report.scores import (
    SCORES,
    Gain,
    Incomplete,
    Score,
    read_scores,
    write_scores,
)
from sumpool.system.files import StoreError

SCORE = Score(
    "fair", "cub", "bn_inception", "c2", "gsp+zs", 512, "mean_average_precision_at_r",
    0.1 + 0.2, 1 / 3, 81, "a “note”",
)  # fmt: skip
GAIN = Gain(
    "fair", "cub", "bn_inception", "c2", "gsp+zs", "gap", 512, "mean_average_precision_at_r",
    0.0095, -0.001, 0.02, 12,
)  # fmt: skip


def test_what_is_written_is_read_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "bench" / SCORES
    assert write_scores(path, [SCORE, replace(SCORE, std=0.0)], [GAIN]) == path
    assert read_scores(path) == ([SCORE, replace(SCORE, std=0.0)], [GAIN], [])


def test_incomplete_groups_are_kept_beside(tmp_path: Path) -> None:
    waiting = Incomplete("fair", "cub", "bn_inception", "c2", "gap", 7, 12, "set gsp.mu=1")
    write_scores(tmp_path / SCORES, [SCORE], [GAIN], [waiting])
    assert read_scores(tmp_path / SCORES) == ([SCORE], [GAIN], [waiting])


def test_no_gains_and_no_scores_can_be_written(tmp_path: Path) -> None:
    write_scores(tmp_path / SCORES, [])
    assert read_scores(tmp_path / SCORES) == ([], [], [])


def test_writing_leaves_one_file_and_replaces_it_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / SCORES
    write_scores(path, [SCORE] * 50)
    write_scores(path, [SCORE])
    assert [entry.name for entry in tmp_path.iterdir()] == [SCORES]
    assert len(read_scores(path)[0]) == 1


def test_scores_that_are_the_same_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_scores(tmp_path / SCORES, [SCORE])
    monkeypatch.setattr("sumpool.bench.report.scores.write_atomic", None)  # would fail
    assert write_scores(path, [SCORE]) == path


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / SCORES
    write_scores(path, [SCORE], [GAIN])
    with pytest.raises(TypeError):
        write_scores(path, [replace(SCORE, note=object())])  # type: ignore[arg-type]
    assert read_scores(path) == ([SCORE], [GAIN], [])


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be finite"):
        replace(SCORE, **{name: value})


def test_a_score_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        replace(SCORE, count=0)
    with pytest.raises(ValueError, match="std must not be negative"):
        replace(SCORE, std=-0.1)


def test_an_interval_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="low must not exceed high"):
        replace(GAIN, low=0.1, high=0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "holds no scores"),
        ("[]", "scores and gains are expected"),
        (json.dumps({"scores": [{"protocol": "fair"}], "gains": []}), "is not a score"),
        (json.dumps({"scores": [], "gains": [{"wrong": 1}]}), "is not a gain"),
    ],
)
def test_a_file_of_something_else_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / SCORES
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=said) as error:
        read_scores(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_a_changed_file_is_refused(tmp_path: Path, place: int) -> None:
    path = write_scores(tmp_path / SCORES, [SCORE], [GAIN])
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    before = write_scores(tmp_path / "other.json", [SCORE], [GAIN])
    try:
        assert read_scores(path) == read_scores(before)
    except StoreError:
        return


def test_a_score_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="not a share between 0 and 1"):
        replace(SCORE, mean=57.0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.json cannot be read: No such file"):
        read_scores(tmp_path / "nowhere.json")
