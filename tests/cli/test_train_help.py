"""``sumpool train --help`` shows what people use; ``--help-all`` shows everything."""

from __future__ import annotations

import pytest

from sumpool.cli import main
from sumpool.cli.train import COMMON
from sumpool.training.config import TrainConfig, flat


def shown(option: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, set[str]]:
    with pytest.raises(SystemExit) as end:
        main(["train", option])
    assert end.value.code == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines() if line.startswith("  --")]
    return text, {words[0].strip(",").removeprefix("--").replace("-", "_") for words in lines}


def test_help_shows_fifteen_options_in_groups_with_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, options = shown("--help", capsys)
    assert options == {name for names in COMMON.values() for name in names}
    assert len(options) == 15
    assert "examples:\n  sumpool train --data photos/" in text
    assert "--help-all" in text
    assert all(f"\n{title}:\n" in text for title in COMMON)


def test_help_all_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    _, options = shown("--help-all", capsys)
    assert options >= {"config", "resume", *flat(TrainConfig())}


def test_options_with_a_list_of_values_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = shown("--help-all", capsys)
    assert not [line for line in text.splitlines() if "+ ]" in line]


def test_defaults_that_depend_on_the_recipe_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown("--help-all", capsys)[0].split())
    assert "learning rate (recipe best: 1e-4" in text
    assert "(recipe best: 16 passes over the images" in text
