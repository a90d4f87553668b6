"""Warm start for runs on glyph collages, in place of pretrained weights.

Proxies drawn among embeddings of an untrained network nearly coincide, and a contrastive loss keeps
them together: pulls toward the proxies of a class add up, pushes from all others cancel out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from sumpool.studies.shared.testbed import Testbed, train_on
from sumpool.system.documents import load_json
from sumpool.training import ConfigError
from sumpool.training.run_folder import write_json

WEIGHTS, FACTS = "backbone.safetensors", "warm-start.json"
#: Steps of the warm start, in full and in quick mode.
STEPS, QUICK_STEPS = 300, 2
#: Seed of the warm start, different from that of any cell.
SEED = 1000
#: Learning rate of runs that start from it, lower than from random weights.
RATE = 3e-3


def warm_start(
    testbed: Testbed, out_dir: Path, *, quick: bool, foreground: bool = False, steps: int = STEPS
) -> Testbed:
    """Return ``testbed`` with a backbone trained with the in-batch C2 loss and average pooling.

    The backbone is trained once and stored in the folder of the study. The linear map after it
    starts at random, as after any pretrained backbone.

    Args:
        testbed: Testbed of the study.
        out_dir: Folder of the study.
        quick: Take only two steps.
        foreground: Train on foregrounds alone, where there is nothing to select.
        steps: Steps of the warm start.

    Raises:
        ConfigError: If the folder holds a warm start with other settings, or a damaged one.
    """
    stop = replace(testbed.config.stop, max_steps=QUICK_STEPS if quick else steps)
    shown = (testbed.distilled or {}) if foreground else {}
    config = replace(testbed.config, loss="c2", pool="gap", seed=SEED, stop=stop, **shown)
    folder = out_dir / "warm-start"
    options = json.loads(json.dumps(asdict(config)))
    weights = folder / WEIGHTS
    if (folder / FACTS).is_file():
        try:
            stored = load_json(folder / FACTS)["config"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{folder / FACTS} is damaged ({error!r}): remove {folder}"
            ) from error
        if stored != options:
            raise ConfigError(
                f"{folder} holds a start with other settings: remove it, or choose another folder"
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        trained = train_on(testbed, config)
        state = trained.model.backbone.state_dict()
        save_file({name: value.cpu().contiguous() for name, value in state.items()}, weights)
        value = trained.metrics["validation"]["mean_average_precision_at_r"]
        facts = {"config": options, "validation_map_at_r": value, "torch": torch.__version__}
        write_json(folder / FACTS, facts)
    optimizer = replace(testbed.config.optimizer, lr=RATE)
    begun = replace(testbed.config, weights=str(weights), optimizer=optimizer)
    return replace(testbed, config=begun, rates=(RATE,))
