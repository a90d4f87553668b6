"""Documents from outside are read within limits; numbers agree with their nouns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sumpool.system.documents import load_json, load_yaml
from sumpool.system.wording import counted

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "alias"),
        ("[" * 3000 + "]" * 3000, "levels"),
        ("- 1\n" * 100_000, "values"),
        ("x" * 2_000_000, "longer"),
        ("a: [1", "line 1"),
        ("!!python/object/apply:os.system [echo]", "constructor"),
    ],
)
def test_yaml_beyond_the_limits_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": "\xff"}', b"", b"9" * 5000])
def test_json_that_cannot_be_read_is_a_value_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        load_json(path)


def test_nouns_agree_with_their_number() -> None:
    assert [counted(n, "class", "classes") for n in (0, 1, 2)] == [
        "0 classes",
        "1 class",
        "2 classes",
    ]


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a value of more than 4,000 characters"):
        load_yaml("seed: " + "9" * 6000)
