"""Models on the Hugging Face Hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sumpool.models.errors import ModelError
from sumpool.models.storage import DESCRIPTION, TENSORS
from sumpool.system.extras import import_extra

#: Prefix of the address of a model on the Hub.
PREFIX = "hf://"
_NAME = r"[\w.-]+/[\w.-]+"


def is_hub_address(source: str | Path) -> bool:
    """Whether ``source`` is a Hub address rather than a folder."""
    return _address(source).startswith(PREFIX)


def _address(source: str | Path) -> str:
    # A Path has lost the second slash.
    return re.sub("^hf:/(?!/)", PREFIX, str(source))


def download(address: str | Path) -> Path:
    """Download the files of a model on the Hub, unless they are cached, and return their folder.

    Args:
        address: "hf://organization/name" or "hf://organization/name@revision".

    Raises:
        ModelError: If the address is invalid, huggingface_hub is not installed, or the download
            fails.
    """
    address = _address(address)
    match = re.fullmatch(rf"{PREFIX}({_NAME})(?:@([\w./-]+))?", address)
    if match is None:
        raise ModelError(
            f"an address of a model is {PREFIX}organization/name or "
            f"{PREFIX}organization/name@revision, got {address}"
        )
    name, revision = match.groups()
    try:
        found = _library().snapshot_download(
            name, revision=revision, allow_patterns=[DESCRIPTION, TENSORS]
        )
    except ModelError:
        raise
    except Exception as error:  # a download can raise anything
        raise ModelError(f"{address} could not be downloaded: {_reason(error)}") from error
    return Path(found)


def upload(folder: Path, name: str, *, private: bool, token: str | None) -> str:
    """Upload the files in ``folder``; see :meth:`Embedder.push_to_hub`.

    Returns:
        The URL of the repository.
    """
    if re.fullmatch(_NAME, name) is None:
        raise ModelError(f"name must be organization/name, got {name!r}")
    api = _library().HfApi(token=token)
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a sumpool model")
    except Exception as error:  # an upload can raise anything
        raise ModelError(f"{name} could not be uploaded: {_reason(error)}") from error
    return str(address)


def _library() -> Any:
    return import_extra("huggingface_hub", "hub", "models on the Hub need", ModelError)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
