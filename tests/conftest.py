"""What every test starts from: one thread, one seed, properties drawn the same way each time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Without a GPU the Triton kernels run in Triton's interpreter, which must be asked for before they
# are imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The examples of a property are the same in every run; `pytest --hypothesis-profile=explore` draws
# new ones and more of them.
settings.register_profile("fixed", deadline=None, derandomize=True, database=None, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("fixed")

# A shell starts what runs in the background with INT ignored, which tests and their processes
# would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seed() -> None:
    # torch.manual_seed also notes the stack for every kind of device that is not in use.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
