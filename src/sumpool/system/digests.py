"""SHA-256 digests of files, in the format of ``sha256sum``, to detect damage on reading."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from sumpool.system.files import StoreError, write_atomic

#: A line of a digest file: a digest, two spaces and a path relative to the folder.
_LINE = re.compile(r"([0-9a-f]{64})  ([^/].*)")


def write_digests(
    folder: Path, name: str, *, skip: Collection[str] = (), only: Collection[str] | None = None
) -> None:
    """Write the digests of the files below ``folder`` to the file ``name`` in it.

    Args:
        folder: Folder of the files.
        name: Name of the digest file, which ``sha256sum -c`` can read.
        skip: Files and folders in ``folder`` to leave out, in addition to hidden ones.
        only: Files in ``folder`` to list; None lists all.
    """
    there = sorted(folder.rglob("*")) if only is None else [folder / it for it in only]
    paths = [path.relative_to(folder) for path in there if path.is_file()]
    kept = [it for it in paths if it.parts[0] not in (name, *skip) and it.parts[0][0] != "."]
    lines = [f"{file_sha256(folder / it)}  {it.as_posix()}\n" for it in kept]
    write_atomic(folder / name, "".join(lines).encode())


def check_digests(folder: Path, name: str, parts: Collection[str]) -> None:
    """Compare files of ``folder`` with the digests in its file ``name``, if there is one.

    Missing files and files without a digest are ignored.

    Args:
        folder: Folder of the files.
        name: Name of the file written by :func:`write_digests`.
        parts: Files and folders in ``folder`` to compare.

    Raises:
        StoreError: If a digest differs, or ``name`` is damaged.
    """
    listing = folder / name
    if not listing.is_file():
        return
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise StoreError(f"{listing} is damaged: {error}") from error
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or ".." in Path(match[2]).parts:
            raise StoreError(f"line {number} of {listing} is damaged: {line!r}")
        path = folder / match[2]
        wanted = any(Path(match[2]).is_relative_to(part) for part in parts)
        if wanted and path.is_file() and file_sha256(path) != match[1]:
            raise StoreError(
                f"{path} is damaged, or was changed: its SHA-256 is not the one in {listing}; "
                "restore it, or remove that list to use the file as it is"
            )


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
