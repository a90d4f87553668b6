"""Configurations: what is written is read, what is unknown is refused."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from sumpool.training import ConfigError, GspConfig, StopConfig, TrainConfig
from sumpool.training.config import (
    FREE_TO_CHANGE,
    config_from_dict,
    differences,
    flat,
    flat_switches,
    read_config,
    write_config,
)


def test_a_written_configuration_is_read_back(tmp_path: Path) -> None:
    config = TrainConfig(data="größe", gsp=GspConfig(mu=0.2), loss_options={"margin": 0.5})
    write_config(config, tmp_path / "config.yaml")
    assert read_config(tmp_path / "config.yaml") == config


def test_a_configuration_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    write_config(TrainConfig(seed=1), path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)  # all is written, and nothing is renamed
    with pytest.raises(KeyboardInterrupt):
        write_config(TrainConfig(seed=2), path)
    assert read_config(path) == TrainConfig(seed=1)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [({"lr": 1}, "unknown option: lr"), ({"gsp": {"m": 3}}, "unknown option: gsp.m")],
)
def test_an_unknown_option_is_named(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config_from_dict(values)


@pytest.mark.parametrize("text", ["a: [", "just words", "lr: 3", "\x00"])
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        read_config(path)


def test_differences_name_options_by_their_dots() -> None:
    one = TrainConfig(seed=1, stop=StopConfig(patience=3))
    assert differences(one, TrainConfig()) == {"seed": (1, 0), "stop.patience": (3, None)}


def test_options_free_to_change_exist() -> None:
    assert set(flat(TrainConfig())) >= FREE_TO_CHANGE


def test_switches_are_the_options_that_are_true_or_false() -> None:
    assert flat_switches() >= {"skip_broken", "hardware.compile", "gallery"}
    assert "seed" not in flat_switches()


def test_every_option_survives_a_dictionary() -> None:
    assert config_from_dict(asdict(TrainConfig())) == TrainConfig()
