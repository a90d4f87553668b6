"""A search: its trials, what survives an interrupt, and what it says in the end."""

from __future__ import annotations

import html
import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sumpool.bench.settings import parse_settings
from sumpool.system.files import StoreError
from sumpool.system.locks import claim
from sumpool.training import (
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    RunError,
    TrainConfig,
)
from sumpool.training.config import with_options
from sumpool.training.settings import check_effects
from sumpool.training.values.recipes import with_recipe
from sumpool.tune import store as store_module
from sumpool.tune import trial as trial_module
from sumpool.tune.page import importances, write_tune_page
from sumpool.tune.result import Result, result_of, train_command
from sumpool.tune.sampling import suggest
from sumpool.tune.search import run_search
from sumpool.tune.space import parse_space
from sumpool.tune.store import BEST, DATABASE, LOCK, Trial, TuneStore
from sumpool.tune.trial import trial_config

CONFIG = TrainConfig(format="glyphs")
VARY = ["optimizer.lr=1e-5..1e-2:log", "pool=gap,gsp"]
Report = Callable[[int, float], None]


def peak(config: TrainConfig, _: Report | None = None) -> float:
    """Best at a learning rate of 1e-3."""
    return 0.6 - 0.1 * abs(math.log10(config.optimizer.lr or 1e-5) + 3)


def search(folder: Path, trials: int = 3, config: TrainConfig = CONFIG, **options: Any) -> Result:
    space = parse_space(options.pop("vary", VARY), config)
    return run_search(folder, config, space, trials=trials, progress=False, **options)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., float]], list[TrainConfig]]:
    """Replaces training by a function; returns the configurations it was called with."""

    def replace_by(score: Callable[..., float]) -> list[TrainConfig]:
        seen: list[TrainConfig] = []

        def noted(config: TrainConfig, report: Report) -> float:
            seen.append(config)
            return score(config, report)

        monkeypatch.setattr(trial_module, "score_of", noted)
        return seen

    return replace_by


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of three trials."""
    path = tmp_path_factory.mktemp("tune") / "a & b? 50%25 #1 ü"
    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr(trial_module, "score_of", peak)
        search(path)
    return path


def test_trial_0_is_the_default_and_the_gain_is_over_it(folder: Path) -> None:
    result = result_of(TuneStore(folder))
    assert trial_config(CONFIG, result.trials[0].options) == CONFIG
    assert result.default is not None
    assert result.default.params == {"optimizer.lr": 1e-5, "pool": "gsp"}
    assert result.best is not None
    assert result.gain == pytest.approx((result.best.score or 0) - 0.4)
    assert f"Trial {result.best.number} beats the default by" in result.verdict()
    stored = json.loads((folder / BEST).read_text())
    assert stored["command"] == result.command
    assert stored["options"]["optimizer.lr"] == result.best.options["optimizer.lr"]
    assert f"--optimizer.lr {result.best.options['optimizer.lr']}" in result.command


def test_a_search_that_gains_nothing_says_so_and_reads_no_test_image(
    scored: Any, tmp_path: Path
) -> None:
    seen = scored(lambda config, _: 0.5 if config.optimizer.lr is None else 0.4)
    result = search(tmp_path, 2)
    assert [it.test for it in seen] == [False, False]  # no test image is opened
    assert result.verdict() == "No trial beats the default: MAP@R 50.0 % on validation classes."
    assert result.command == "sumpool train --recipe papers --format glyphs"


def test_an_interrupted_search_loses_no_trial(scored: Any, folder: Path, tmp_path: Path) -> None:
    def interrupted(config: TrainConfig, report: Report) -> float:
        if len(seen) == 2:
            report(1, 0.1)
            raise KeyboardInterrupt
        return peak(config)

    seen = scored(interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path)
    assert [it.state for it in TuneStore(tmp_path).trials()] == ["complete", "waiting"]
    search(tmp_path)
    assert len(seen) == 4  # one trial was begun twice, the finished one was not

    def known(path: Path) -> list[Any]:
        trials = TuneStore(path).trials()
        return [(it.number, it.options, it.params, it.score, it.state) for it in trials]

    assert known(tmp_path) == known(folder)


@pytest.mark.parametrize("step", ["enqueue_trial", "tell"])
def test_a_kill_while_lost_trials_are_queued_loses_none(
    scored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(config: TrainConfig, report: Report) -> float:
        raise KeyboardInterrupt

    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit("killed")

    scored(interrupted)
    requeue = TuneStore.requeue_lost
    with monkeypatch.context() as patch:
        patch.setattr(TuneStore, "requeue_lost", lambda *_, **__: 0)
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path)
    store = TuneStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(store._study), step, killed)
        with pytest.raises(SystemExit, match="killed"):
            requeue(store)
    seen = scored(peak)
    result = search(tmp_path)
    assert [(it.number, it.state) for it in result.trials] == [(n, "complete") for n in range(3)]
    assert len(seen) == 3


def test_a_trial_killed_as_it_begins_keeps_its_parameters(scored: Any, tmp_path: Path) -> None:
    scored(peak)
    search(tmp_path, 1)
    store = TuneStore(tmp_path)
    planned = {"optimizer.lr": 2e-4, "pool": "gap"}
    store._enqueue({"number": 1, "options": planned}, planned)
    store._study.ask()  # killed before its parameters are stored
    assert search(tmp_path, 2).trials[1].params == planned


def test_a_point_that_ends_its_process_each_time_is_not_tried_anew(
    scored: Any, tmp_path: Path
) -> None:
    seen = scored(peak)
    config, vary = replace(CONFIG, batch_size=16), ["pool=gap,gsp", "batch_size=16..17"]
    search(tmp_path, 1, config, vary=vary)
    store = TuneStore(tmp_path)
    for _ in range(store_module.ATTEMPTS):
        _, lost = store.begin(0)
        store.requeue_lost(crashed=True)
    result = search(tmp_path, 9, config, vary=vary)
    assert result.counts() == "4 trials: 3 complete, 1 failed"
    assert lost.params == result.trials[1].params
    assert lost.params not in [{"pool": it.pool, "batch_size": it.batch_size} for it in seen]


def test_a_kill_does_not_revive_a_point_that_ends_its_process(
    scored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit("killed")

    scored(peak)
    search(tmp_path, 1)
    store = TuneStore(tmp_path)
    for _ in range(store_module.ATTEMPTS - 1):
        store.begin(0)
        store.requeue_lost(crashed=True)
    store.begin(0)
    with monkeypatch.context() as patch:
        patch.setattr(type(store._study), "tell", killed)
        with pytest.raises(SystemExit, match="killed"):
            store.requeue_lost(crashed=True)
    store.requeue_lost()
    assert [it.state for it in store.trials()] == ["complete", "failed"]


def test_a_folder_keeps_one_search(scored: Any, folder: Path, tmp_path: Path) -> None:
    seen = scored(peak)
    assert search(folder).counts() == "3 trials: 3 complete"
    with pytest.raises(StoreError, match=r"pool is 'gap', but the search in .* begun with 'gsp'"):
        search(folder, config=replace(CONFIG, pool="gap"))
    with pytest.raises(StoreError, match=r"vary is not what .* pool=gap,gsp: choose another --out"):
        search(folder, vary=["pool=gap,gmp"])
    with claim(folder / LOCK), pytest.raises(StoreError, match="is being searched by process"):
        search(folder, 4)
    assert not seen
    with pytest.raises(StoreError, match=r"holds no search: study\.db is missing"):
        TuneStore(tmp_path)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("nothing")
    with pytest.raises(StoreError, match=r"study\.db is damaged"):
        TuneStore(tmp_path)


@pytest.mark.process  # seconds of SQLite
def test_hopeless_trials_end_early_and_failed_ones_are_listed(
    scored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(config: TrainConfig, report: Report) -> float:
        place = len(seen) - 1
        if place == 2:
            raise RunError("the loss is nan")
        report(10, 0.1 if place == 4 else 0.5)
        return 0.5

    seen = scored(score)
    monkeypatch.setattr(store_module, "START", 3)
    result = search(tmp_path, 5)
    states = [it.state for it in result.trials]
    assert states == ["complete", "complete", "failed", "complete", "pruned"]
    assert result.trials[2].error == "the loss is nan"
    assert result.trials[4].score == 0.1
    assert result.counts() == "5 trials: 3 complete, 1 pruned, 1 failed"


@pytest.mark.process  # seconds of SQLite
def test_a_default_that_fails_ends_the_search_and_is_tried_again(
    scored: Any, tmp_path: Path
) -> None:
    def broken(config: TrainConfig, _: Report) -> float:
        raise RunError("an image is broken")

    scored(broken)
    with pytest.raises(RunError, match="the default fails: an image is broken"):
        search(tmp_path)
    scored(peak)
    assert search(tmp_path, 1).counts() == "1 trial: 1 complete"


def test_the_time_ends_a_search(scored: Any, tmp_path: Path) -> None:
    def slow(config: TrainConfig, report: Report) -> float:
        if len(seen) == 2:
            monkey.setattr(trial_module.time, "time", lambda: math.inf)
        report(1, 0.3)
        return peak(config)

    seen = scored(slow)
    with pytest.MonkeyPatch.context() as monkey:
        result = search(tmp_path, 3, minutes=5.0)
    assert [it.state for it in result.trials] == ["complete", "waiting"]
    assert result.counts() == "1 trial: 1 complete"


def test_options_without_effect_are_left_out_of_a_trial() -> None:
    config = replace(CONFIG, gsp=GspConfig(mu=0.2), optimizer=OptimizerConfig(lr=1e-3))
    found = trial_config(config, {"pool": "gap", "gsp.eps": 3.0})
    check_effects(found)
    assert found == replace(config, pool="gap", gsp=GspConfig())
    assert trial_config(config, {"gsp.eps": 3.0}).gsp == GspConfig(mu=0.2, eps=3.0)
    command = train_command(replace(found, data="my photos", format="auto"))
    assert command == (
        "sumpool train --recipe papers --data 'my photos' --pool gap --optimizer.lr 0.001"
    )


@pytest.mark.parametrize("given", [{}, {"loss": "c2", "ccp.enabled": True}, {"stop.patience": 3}])
def test_the_command_gives_what_the_recipe_does_not(given: dict[str, Any]) -> None:
    config = with_options(with_recipe("best", given), {"optimizer.lr": 1e-3, "optimizer.ema": 0.0})
    words = shlex.split(train_command(config))
    assert words[:2] == ["sumpool", "train"]
    typed = zip(words[2::2], words[3::2], strict=True)
    parsed = parse_settings([f"{key.removeprefix('--')}={value}" for key, value in typed])
    assert with_recipe("best", parsed) == config


def test_a_default_outside_of_the_space_is_still_trial_0(scored: Any, tmp_path: Path) -> None:
    scored(peak)
    result = search(tmp_path, 2, vary=["optimizer.lr=1e-4..1e-2:log", "pool=gap,gmp"])
    assert result.default is not None
    assert result.default.params == {}
    assert len(result.trials[1].params) == 2


def test_trials_need_validation_classes_one_device_and_an_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="selection must be validation"):
        search(tmp_path, config=replace(CONFIG, selection="test"))
    with pytest.raises(ConfigError, match=r"hardware.devices must be 1 in a search, got 2"):
        search(tmp_path, config=replace(CONFIG, hardware=HardwareConfig(devices=2)))
    with pytest.raises(ConfigError, match="the end is missing: give --trials or --minutes"):
        run_search(tmp_path, CONFIG, parse_space(VARY, CONFIG))


def test_a_search_ends_when_every_point_is_tried(
    scored: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sumpool.tune")
    seen = scored(peak)
    vary = ["pool=gap,gsp", "batch_size=16..17"]
    result = search(tmp_path, 9, replace(CONFIG, batch_size=16), vary=vary)
    assert result.counts() == "4 trials: 4 complete"
    assert len({(it.pool, it.batch_size) for it in seen}) == 4
    assert "every point of the space is tried: the search ends" in caplog.text


def test_what_varies_has_an_effect_in_some_trial(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vary gsp\.eps has no effect in any trial"):
        search(tmp_path, config=replace(CONFIG, pool="gap"), vary=["gsp.eps=1..9"])
    with pytest.raises(ConfigError, match=r"vary gsp\.eps has no effect"):
        search(tmp_path, vary=["gsp.eps=1..9", "pool=gap,gmp"])


def test_a_large_space_is_checked_too(tmp_path: Path) -> None:
    names = ["lr", "weight_decay", "beta1", "beta2", "embedding_lr_multiplier", "ema"]
    others = [f"optimizer.{name}=0.1..0.9" for name in names]
    others += [f"optimizer.{name}=1..9" for name in ("warmup_epochs", "plateau_patience")]
    others += [f"stop.{name}=1..9" for name in ("validate_every", "patience", "max_steps")]
    others += [f"{name}=32..64" for name in ("batch_size", "embedding_size", "crop", "resize")]
    with pytest.raises(ConfigError, match=r"vary gsp\.eps has no effect in any trial"):
        search(tmp_path, vary=[*others, "gsp.eps=1..9", "loss=c2,pnca", "pool=gap,gmp"])


def test_a_folder_of_a_run_is_left_as_it_is(scored: Any, tmp_path: Path) -> None:
    seen = scored(peak)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StoreError, match="holds a run: choose another folder with --out"):
        search(tmp_path)
    assert [it.name for it in tmp_path.iterdir()] == ["run.json"]
    assert not seen


def test_the_limits_of_the_search_are_not_those_of_its_trials(scored: Any, tmp_path: Path) -> None:
    seen = scored(peak)
    config = replace(CONFIG, minutes=3.0, out=str(tmp_path))
    result = search(tmp_path, 2, config)
    assert [(it.minutes, it.out) for it in seen] == [(None, None)] * 2
    assert "--minutes" not in result.command
    assert search(tmp_path, 2, replace(config, minutes=4.0)).counts() == result.counts()


def test_pruned_trials_count_as_no_more_than_the_median() -> None:
    space = parse_space(["optimizer.lr=1e-5..1e-2:log"], CONFIG)

    def trial(number: int, state: Any, score: float | None) -> Trial:
        params = {"optimizer.lr": 1e-4 + number * 1e-5}
        return Trial(number, state, params, params, score)

    trials = [
        *(trial(number, "complete", score) for number, score in enumerate((0.2, 0.4, 0.6))),
        trial(3, "pruned", 0.5),
        trial(4, "pruned", 0.1),
        trial(5, "failed", 0.9),
        trial(6, "running", 0.9),
    ]
    scores = [score for _, score in store_module._points(trials, space)]
    assert scores == pytest.approx([0.2, 0.4, 0.6, 0.4, 0.1, 0.2, 0.4])
    assert store_module._points(trials[3:], space) == []


def test_the_page_has_the_command_and_every_trial(folder: Path, tmp_path: Path) -> None:
    result = result_of(TuneStore(folder))
    text = write_tune_page(folder, tmp_path / "page.html").read_text()
    assert result.verdict() in text
    assert html.escape(result.command) in text
    assert "0 (default)" in text
    assert text.count('<th scope="row">') == 3


@pytest.mark.process  # scikit-learn's forests take seconds
def test_what_decides_the_score_is_found() -> None:
    space = parse_space(VARY, CONFIG)
    params = [
        {"optimizer.lr": 10.0 ** -(2 + it % 4), "pool": ("gap", "gsp")[it % 2]} for it in range(8)
    ]
    trials = [
        Trial(it, "complete", own, own, -float(own["optimizer.lr"]))
        for it, own in enumerate(params)
    ]
    result = Result(trials, None, None, "", {}, CONFIG.stop.monitor, space)
    shares = importances(result)
    assert max(shares, key=lambda name: shares[name]) == "optimizer.lr"
    assert importances(replace(result, trials=trials[:3])) == {}


def test_no_point_is_asked_for_twice() -> None:
    rate, pool = parse_space(VARY, CONFIG)
    # The process would ask for the upper end again and again.
    best = [({"optimizer.lr": 10.0**power}, float(power)) for power in (-5, -4, -3, -2)]
    known = [params for params, _ in best]
    asked = suggest(best, [rate], 3, seed=0)
    assert all(it not in [*known, *asked[:place]] for place, it in enumerate(asked))
    assert asked == suggest(best, [rate], 3, seed=0)
    assert suggest([({"pool": "gap"}, 1.0)], [pool], 1, seed=0) == [{"pool": "gsp"}]
    # Where nothing is left, a known point is better than none.
    both = [({"pool": "gap"}, 1.0), ({"pool": "gsp"}, 0.0)]
    assert suggest(both, [pool], 1, seed=0)[0]["pool"] in ("gap", "gsp")
