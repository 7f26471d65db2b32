"""A request to stop is heard, whatever the moment."""

from __future__ import annotations

import os
import select
import signal

import pytest

from reprieve.app.stopping import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_signal_itself_makes_the_pipe_readable(number: signal.Signals) -> None:
    """Not our handler: that one runs only when Python does, and a wait may begin before it."""
    with Stop() as stop:
        ready = select.poll()
        ready.register(stop.wake_fd, select.POLLIN)
        assert ready.poll(0) == []
        old = signal.signal(number, lambda *_: None)  # as if Python had not come to it yet
        os.kill(os.getpid(), number)
        assert ready.poll(0) != []
        signal.signal(number, old)


def test_it_is_asked_once_and_a_second_ctrl_c_ends() -> None:
    with Stop() as stop:
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(600)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_everything_is_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Stop():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert signal.set_wakeup_fd(-1) == -1
