"""INT and TERM to a group of processes: the first one decides, the others follow."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time

import pytest

from sumpool.system.signals import (
    SIGNALS,
    interrupt_status,
    obey_parent_alone,
    shielded_children,
    show_stacks_on_request,
    term_interrupts,
)


@pytest.mark.process
def test_term_interrupts_once_and_leaves_the_cleanup_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    @term_interrupts()
    def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # `timeout` sends it twice

    with pytest.raises(KeyboardInterrupt) as raised:
        command()
    assert interrupt_status(raised.value) == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_that_a_destructor_drops_comes_again(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)

    @term_interrupts()
    def command() -> None:
        Interrupted()
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt) as raised:
        command()
    assert interrupt_status(raised.value) == 128 + number
    assert capsys.readouterr().err == ""


def test_ctrl_c_ends_with_its_own_status() -> None:
    assert interrupt_status(KeyboardInterrupt()) == 130


def test_signals_are_delivered_when_the_children_have_started() -> None:
    reached = []

    @term_interrupts()
    def command() -> None:
        with shielded_children(*SIGNALS):
            signal.raise_signal(signal.SIGTERM)  # to this thread: others may be about
            reached.append("the end of the start")
        reached.append("more")

    with pytest.raises(KeyboardInterrupt):
        command()
    assert reached == ["the end of the start"]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="the system does not say who sent")
@pytest.mark.process
def test_the_first_child_is_shielded_too() -> None:
    # The first process that is spawned starts another one beside it, which opens the shield.
    script = (
        "import signal\n"
        "from multiprocessing import resource_tracker\n"
        "from sumpool.system.signals import shielded_children\n"
        "with shielded_children(signal.SIGINT):\n"
        "    resource_tracker.ensure_running()\n"
        "    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"


def test_a_worker_obeys_its_parent_alone() -> None:
    with shielded_children(*SIGNALS):
        worker = os.fork()
    if not worker:  # pragma: no cover
        obey_parent_alone()
        time.sleep(60)
        os._exit(9)
    for number in SIGNALS:
        other = os.spawnlp(os.P_WAIT, "kill", "kill", f"-{number.value}", str(worker))
        assert other == 0
    time.sleep(0.2)
    assert os.waitpid(worker, os.WNOHANG) == (0, 0)
    os.kill(worker, signal.SIGTERM)
    assert os.waitpid(worker, 0) == (worker, 0)


def test_a_process_that_hangs_can_be_asked_where_it_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    show_stacks_on_request()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        faulthandler.unregister(signal.SIGUSR1)
    assert "in test_a_process_that_hangs_can_be_asked_where_it_is" in capfd.readouterr().err
