"""An embedder trains inside DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from models.tiny import embedder, images


@pytest.fixture
def _alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.process
@pytest.mark.usefixtures("_alone")
def test_steps_are_those_of_the_model_itself() -> None:
    options = {"pooling_options": {"prototypes": 4}}
    plain, inner = embedder(**options).train(), embedder(**options).train()
    wrapped = DistributedDataParallel(inner)
    for step in range(2):
        for model in (plain, wrapped):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            out = model(images(plain) + step, details=True)
            (out.embedding[:, 0].sum() + out.attributes[:, 0].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(inner.state_dict()[name], value, msg=name)
