"""Gains are paired, and their intervals hold what they promise."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from protocols.fake_members import clustered, write_member, write_members
from sumpool.protocols import (
    PROTOCOLS,
    MissingMemberError,
    ProtocolError,
    combine,
    gains_between,
    paired_gain,
    read_member,
)
from sumpool.protocols.gains import factor_interval, t_interval

FAIR = PROTOCOLS["fair"]
ALONE = [torch.arange(60) % 9]


def test_gains_are_those_of_pairs_and_agree_with_the_scores(tmp_path: Path) -> None:
    ours = write_members(tmp_path / "ours", FAIR, clustered(ALONE, noise=1.4), ALONE)
    theirs = write_members(tmp_path / "theirs", FAIR, clustered(ALONE, noise=1.7), ALONE)
    gains = {(it.dimension, it.metric): it for it in paired_gain(FAIR, ours, theirs[::-1])}
    one, two = combine(FAIR, ours), combine(FAIR, theirs)
    scores = [{(it.dimension, it.metric): it.mean for it in c.scores()} for c in (one, two)]
    assert set(gains) == set(scores[0])
    for key, gain in gains.items():
        # The difference of what the table shows.
        assert gain.mean == pytest.approx(scores[0][key] - scores[1][key], abs=1e-12)
        assert gain.low <= gain.mean <= gain.high
        assert gain.confidence == 0.95
    found = gains[6, "mean_average_precision_at_r"]
    pairs = [
        a.metrics["mean_average_precision_at_r"] - b.metrics["mean_average_precision_at_r"]
        for a, b in zip(ours, theirs, strict=True)
    ]
    expected = stats.ttest_1samp(pairs, 0).confidence_interval(0.95)
    assert found.count == 12
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert gains[24, "mean_average_precision_at_r"].count == 81
    sure = {it.metric: it for it in gains_between(one, two, confidence=0.5) if it.dimension == 24}
    wide = gains[24, "r_precision"]
    assert sure["r_precision"].high - sure["r_precision"].low < wide.high - wide.low


def test_one_seed_has_no_interval_of_concatenated_models(tmp_path: Path) -> None:
    ours = write_members(tmp_path / "a", FAIR, clustered(ALONE, noise=0.5), ALONE, seeds=1)
    theirs = write_members(tmp_path / "b", FAIR, clustered(ALONE), ALONE, seeds=1)
    gains = paired_gain(FAIR, ours, theirs, seeds=1)
    assert {(it.dimension, it.count) for it in gains} == {(6, 4)}


def test_what_cannot_be_paired_is_refused(tmp_path: Path) -> None:
    ours = write_members(tmp_path / "a", FAIR, clustered(ALONE), ALONE)
    combined = combine(FAIR, ours)
    # A method has no gain over itself.
    assert {(it.mean, it.low, it.high) for it in gains_between(combined, combined)} == {(0, 0, 0)}
    with pytest.raises(MissingMemberError, match="fold 4, seed 2"):
        paired_gain(FAIR, ours, ours[:-1])
    fewer = [torch.arange(50) % 9]
    theirs = write_members(tmp_path / "b", FAIR, clustered(fewer), fewer)
    with pytest.raises(ProtocolError, match="was evaluated on other images"):
        paired_gain(FAIR, ours, theirs)
    two = [it for it in ours if it.member.seed < 2]
    with pytest.raises(ProtocolError, match="same folds and seeds, got 12 and 8"):
        gains_between(combined, combine(FAIR, two, seeds=2))
    tuning = PROTOCOLS["tuning"]
    own = [
        read_member(
            tuning, it, write_member(tmp_path / str(it), "validation", [torch.eye(60)], ALONE)
        )
        for it in tuning.members()
    ]
    with pytest.raises(ProtocolError, match="under one protocol, got fair and tuning"):
        gains_between(combined, combine(tuning, own))
    with pytest.raises(ValueError, match="confidence must lie in"):
        gains_between(combined, combined, confidence=95)


@pytest.mark.parametrize("interaction", [0.0, 0.5])
def test_the_interval_over_combinations_covers_the_truth_as_often_as_it_says(
    interaction: float,
) -> None:
    random = np.random.default_rng(0)
    folds, seeds, true, trials = 4, 3, 0.7, 1000
    covered = 0
    for _ in range(trials):
        drawn = random.normal(0, [[0.2], [1.0], [0.5], [1.0]], (folds, seeds))
        table = np.array([sum(it) for it in itertools.product(*drawn)]).reshape((seeds,) * folds)
        # What two models have together and neither alone.
        table += interaction * drawn[1][None, :, None, None] * drawn[3][None, None, None, :]
        found = factor_interval(true + table, 0.95)
        assert found is not None
        covered += found[1] <= true <= found[2]
    # Of three draws variances are known so badly that the interval errs on the wide side.
    assert 0.94 < covered / trials < 0.99


def test_one_factor_alone_gives_students_interval() -> None:
    values = np.array([0.1, 0.4, 0.3])
    found, expected = factor_interval(values, 0.9), t_interval(values, 0.9)
    assert found == pytest.approx(expected)
    assert t_interval(values[:1], 0.9) is None
    assert factor_interval(values[:1], 0.9) is None
