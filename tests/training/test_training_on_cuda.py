"""On a GPU: recorded, compiled and mixed-precision steps are those of the plain loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.training import GspConfig, HardwareConfig, StopConfig
from training.test_ccp import WITH_CCP
from training.tiny import CONFIG, Scripted, trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch's remarks on streams while it records, and on its own tensor cores.
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning"),
    # What torch 2.11 and its libraries say of themselves when the compiler is first used.
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
]


class Rising:
    """Judges each model better than the one before, over all runs."""

    value = 0.0

    def __call__(self, model: nn.Module) -> dict[str, float]:
        Rising.value += 0.001
        return {"mean_average_precision_at_r": Rising.value, "precision_at_1": 0.0}


def trained(steps: int = 12, folder: Path | None = None, **hardware: Any) -> dict[str, Tensor]:
    precision = hardware.get("precision", "32-true")
    fabric = Fabric(accelerator="cuda", devices=1, precision=precision)
    config = replace(
        CONFIG,
        hardware=HardwareConfig(**hardware),
        stop=StopConfig(validate_every=steps, patience=100, max_steps=steps),
    )
    runner = trainer(config, Rising(), folder=folder, on=fabric)
    runner.fit(resume=folder is not None)
    return {name: tensor.float() for name, tensor in runner.model.state_dict().items()}


@pytest.mark.parametrize(
    ("hardware", "tolerance"),
    [
        ({"cuda_graph": True}, 1e-5),
        ({"cuda_step": True}, 1e-5),
        ({"channels_last": False}, 1e-3),
        ({"compile": True}, 1e-4),
        ({"compile": True, "cuda_graph": True}, 1e-4),
        ({"compile": True, "cuda_step": True}, 1e-4),
        ({"precision": "bf16-mixed"}, 5e-2),
        ({"precision": "bf16-mixed", "cuda_graph": True}, 5e-2),
    ],
)
def test_faster_steps_are_the_same_steps(hardware: dict[str, Any], tolerance: float) -> None:
    plain, fast = trained(), trained(**hardware)
    for name in plain:
        torch.testing.assert_close(plain[name], fast[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("how", ["cuda_graph", "cuda_step"])
def test_recorded_steps_follow_schedule_average_and_sharpness(how: str) -> None:
    found = []
    for hardware in (HardwareConfig(), HardwareConfig(**{how: True})):  # type: ignore[arg-type]
        config = replace(
            CONFIG,
            hardware=hardware,
            gsp=GspConfig(4, 0.5, spread=0.8, init="image"),
            optimizer=replace(CONFIG.optimizer, schedule="cosine", ema=0.9),
            stop=StopConfig(validate_every=5, max_steps=12, keep="last"),
        )
        runner = trainer(config, Rising(), on=Fabric(accelerator="cuda", devices=1))
        runner.fit()
        found.append(runner.model.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["cuda_graph", "cuda_step"])
def test_a_recorded_run_is_resumed(tmp_path: Path, how: str) -> None:
    whole = trained(**{how: True})
    trained(steps=5, folder=tmp_path, **{how: True})
    resumed = trained(folder=tmp_path, **{how: True})
    for name in whole:
        torch.testing.assert_close(whole[name], resumed[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["cuda_graph", "cuda_step"])
def test_recorded_steps_follow_the_problems(how: str) -> None:
    # Better, worse, better, worse, …: a problem has ten steps, four of them in all.
    script = [0.1, 0.05, 0.2, 0.15, 0.3, 0.25, 0.4, 0.35]
    found = []
    for hardware in (HardwareConfig(), HardwareConfig(**{how: True})):  # type: ignore[arg-type]
        fabric = Fabric(accelerator="cuda", devices=1)
        config = replace(CONFIG, **WITH_CCP, hardware=hardware)
        config = replace(config, stop=StopConfig(validate_every=5, patience=100, max_steps=40))
        runner = trainer(config, Scripted(script), on=fabric)
        runner.fit()
        assert runner.alternating is not None
        assert len(runner.alternating.problems) == 4
        found.append([*runner.model.parameters(), *runner.criterion.parameters()])
    for plain, recorded in zip(*found, strict=True):
        torch.testing.assert_close(plain, recorded, rtol=1e-4, atol=1e-4)
