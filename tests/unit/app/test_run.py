"""What becomes of signals at the moments of a run that no clock hits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

import pytest

from reprieve.app.finding import open_workspace
from reprieve.app.run import _spawn, run


def test_a_signal_that_comes_when_the_command_has_just_ended_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is free by then, so whoever gets it next would be hit; and there is nothing to fail for."""
    wait = os.waitpid

    def wait_and_be_signalled(pid: int, options: int) -> tuple[int, int]:
        ended = wait(pid, options)
        os.kill(os.getpid(), signal.SIGTERM)
        return ended

    monkeypatch.setattr(os, "waitpid", wait_and_be_signalled)
    assert _spawn(("sh", "-c", "exit 9"), {}, []) == 9


class Heard(BaseException):
    """What the command line's handlers raise."""


@pytest.mark.parametrize("argv", [["sh", "-c", "echo agent > doc"], ["no-such-command-anywhere"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_end_is_recorded_waits_for_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, argv: list[str]
) -> None:
    """Or the window would stay open, and what the person does next would be taken back as the run's."""

    def hear(number: int, frame: FrameType | None) -> None:
        raise Heard

    look = os.listdir

    def look_and_be_signalled(path: str = ".") -> list[str]:
        if path == "/proc":  # for what the command has left: it is over, and not recorded yet
            os.kill(os.getpid(), number)
        return look(path)

    signal.signal(number, hear)
    monkeypatch.chdir(project)
    (project / "doc").write_text("old")
    (project / "mine").write_text("old")
    with open_workspace(str(project), create=True) as ws:
        ws.checkpoint("base")
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", look_and_be_signalled)
            with pytest.raises(Heard):
                run(ws, argv)
        assert signal.getsignal(number) == hear
        (project / "mine").write_text("a person's")
        ws.rollback("base")
    assert (project / "mine").read_text() == "a person's"
    assert (project / "doc").read_text() == "old"


def test_a_check_is_not_begun_for_who_asked_to_end(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure would be the signal's, and might take back good work."""
    done = os.waitstatus_to_exitcode

    def done_and_be_signalled(status: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return done(status)

    with open_workspace(str(project), create=True) as ws:
        with monkeypatch.context() as patch:
            patch.setattr(os, "waitstatus_to_exitcode", done_and_be_signalled)
            with pytest.raises(KeyboardInterrupt):
                run(ws, ["touch", str(project / "made")], check=f"touch {project}/checked", on_failure="rollback")
        assert ws.capture.author()[1].open == ()
    assert (project / "made").exists() and not (project / "checked").exists()
