"""What every test starts from: one thread, one seed, properties drawn the same way each time."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings
from PIL import Image

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


# pytest puts its handlers on every logger that keeps its records to itself, six times per test;
# torch alone has forty of them.
for logger in logging.root.manager.loggerDict.values():
    if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
        logger.propagate = True

# What is imported stays to the end: the garbage collector need not look at it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No doctests are looked for in the tests themselves."""
    return [it for it in (yield) if type(it) is pytest.Module]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests of a file share a process, and with it what they train or compute once."""
    for item in items:
        if not any(item.iter_markers("process")) and not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Quick tests and what they share get figures of one pixel, except those that look at them."""

    def savefig(_figure: object, out: Any, **_options: object) -> None:
        Image.new("RGB", (1, 1)).save(out, "PNG")

    if any(item.get_closest_marker(it) for it in ("drawn", "process")):
        return (yield)
    from matplotlib.figure import Figure  # not for the process that hands the tests out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        return (yield)


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
