"""Digests: damage is found, and what has none is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sumpool.system.digests import check_digests, write_digests
from sumpool.system.files import StoreError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b/c.txt", "left/d.txt", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    write_digests(tmp_path, "SUMS", skip=("left",))
    return tmp_path


def test_every_flipped_bit_of_a_file_or_of_its_digest_is_found(folder: Path) -> None:
    check_digests(folder, "SUMS", ("a.txt", "b"))
    for path in (folder / "a.txt", folder / "b/c.txt"):
        sound = path.read_bytes()
        for place in range(8 * len(sound)):
            damaged = bytearray(sound)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(StoreError, match=f"{path} is damaged"):
                check_digests(folder, "SUMS", ("a.txt", "b"))
        path.write_bytes(sound)
    sums = folder / "SUMS"
    sound = sums.read_bytes()
    for place in range(66):  # a digest and two spaces
        sums.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(StoreError, match="is damaged"):
            check_digests(folder, "SUMS", ("a.txt", "b"))


def test_only_files_that_are_asked_for_there_and_listed_are_compared(folder: Path) -> None:
    (folder / "left/d.txt").write_text("other")
    (folder / ".hidden").write_text("other")
    (folder / "a.txt").write_text("other")
    (folder / "b/c.txt").unlink()
    check_digests(folder, "SUMS", ("b", "left", ".hidden"))
    (folder / "SUMS").unlink()
    check_digests(folder, "SUMS", ("a.txt",))


@pytest.mark.parametrize("line", ["", "abc  a.txt", f"{'0' * 64}  ../a", f"{'0' * 64}  /a"])
def test_a_damaged_list_is_named(folder: Path, line: str) -> None:
    (folder / "SUMS").write_text(f"{line}\n")
    with pytest.raises(StoreError, match=r"line 1 of .*SUMS is damaged"):
        check_digests(folder, "SUMS", ("a.txt",))
