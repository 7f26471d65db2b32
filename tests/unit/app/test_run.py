"""What is passed on to a command, at the moments that no clock hits."""

from __future__ import annotations

import os
import signal

import pytest

from reprieve.app.run import _spawn


def test_a_signal_that_comes_when_the_command_has_just_ended_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is free by then, so whoever gets it next would be hit; and there is nothing to fail for."""
    wait = os.waitpid

    def wait_and_be_signalled(pid: int, options: int) -> tuple[int, int]:
        ended = wait(pid, options)
        os.kill(os.getpid(), signal.SIGTERM)
        return ended

    monkeypatch.setattr(os, "waitpid", wait_and_be_signalled)
    assert _spawn(("sh", "-c", "exit 9"), {}) == 9
