"""A start for runs on glyph collages that, like those on real images, begin from features.

Proxies drawn among embeddings of an untrained network all lie at one place, and with a contrastive
loss they stay there: pulls to the proxies of a class add up, pushes from all others cancel out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from sumpool.studies.shared.testbed import Testbed, train_on
from sumpool.training import ConfigError
from sumpool.training.run_folder import write_json

WEIGHTS, FACTS = "backbone.safetensors", "warm-start.json"
#: Steps of the start, and of the start in the quick mode.
STEPS, QUICK_STEPS = 300, 2
#: Its seed, which no cell has.
SEED = 1000
#: Learning rate of what starts from it: lower than from random weights.
RATE = 3e-3


def warm_start(testbed: Testbed, out_dir: Path, *, quick: bool) -> Testbed:
    """``testbed`` with a backbone that was trained with C2 inside batches and average pooling.

    The backbone is trained once and kept in the folder of the study. The linear map after it starts
    at random, as after any pretrained backbone.

    Raises:
        ConfigError: If the folder holds a start of other settings.
    """
    stop = replace(testbed.config.stop, max_steps=QUICK_STEPS if quick else STEPS)
    config = replace(testbed.config, loss="c2", pool="gap", seed=SEED, stop=stop)
    folder = out_dir / "warm-start"
    options = json.loads(json.dumps(asdict(config)))
    weights = folder / WEIGHTS
    if (folder / FACTS).is_file():
        if json.loads((folder / FACTS).read_text(encoding="utf-8"))["config"] != options:
            raise ConfigError(f"{folder} holds a start of other settings: choose another folder")
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
