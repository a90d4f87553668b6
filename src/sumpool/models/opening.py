"""Models by the folder they are in: that of a run, or their own."""

from __future__ import annotations

import shlex
from pathlib import Path

import torch

from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError
from sumpool.models.storage import DESCRIPTION, load_embedder
from sumpool.report.run.folder import MODEL, RUN


def load(folder: str | Path, device: torch.device | str = "cpu") -> Embedder:
    """The model of a run, or a saved model, in evaluation mode.

    Args:
        folder: Folder of a run, or one that :func:`save_embedder` wrote.
        device: Where to put it.

    Raises:
        ModelError: If there is no model in ``folder``, or it cannot be loaded; the message names
            the file and the defect.
    """
    return load_embedder(model_folder(folder), device)


def model_folder(folder: str | Path) -> Path:
    """Where the model of a run is, or ``folder`` itself.

    Raises:
        ModelError: If ``folder`` holds neither a run with a model nor a model.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}: name that of a run, or of a saved model")
    if (folder / MODEL).is_dir():
        return folder / MODEL
    if (folder / RUN).is_file():
        raise ModelError(
            f"the run {folder} has no model yet, it is not finished: resume it with "
            f"sumpool train --resume {shlex.quote(str(folder))}"
        )
    if not (folder / DESCRIPTION).is_file():
        raise ModelError(f"{folder} holds neither a run nor a model: {RUN}, {DESCRIPTION} missing")
    return folder
