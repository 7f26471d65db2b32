"""The progress line: late, rare, and only where a person watches."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from reprieve.cli import progress, terminal
from reprieve.cli.progress import TerminalReporter, describe
from reprieve.cli.terminal import Terminal


class Screen(io.StringIO):
    encoding = "utf-8"

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen()
    # not sys.stderr itself: pytest puts its own there between a fixture and the test
    monkeypatch.setattr(terminal, "sys", SimpleNamespace(stderr=screen, stdout=sys.stdout, stdin=sys.stdin))
    return screen


def test_short_work_draws_nothing(clock: Clock, screen: Screen) -> None:
    reporter = TerminalReporter(Terminal(environ={"TERM": "xterm"}))
    for _ in range(5):
        reporter.progress("checkpoint", done=1, total=2)
        clock.now += 0.05
    reporter.finished("checkpoint")
    assert screen.getvalue() == ""


def test_long_work_is_drawn_after_300_ms_and_wiped_at_the_end(clock: Clock, screen: Screen) -> None:
    reporter = TerminalReporter(Terminal(environ={"TERM": "xterm"}))
    reporter.progress("saving", done=0, total=4000)
    clock.now += 1.0
    reporter.progress("saving", done=1000, total=4000, extra=20_000_000)
    assert "Saving 1,000 of 4,000 files, 20 MB, 3 s left" in screen.getvalue()
    reporter.finished("saving")
    assert screen.getvalue().endswith("\r\x1b[K")


def test_it_is_redrawn_at_most_ten_times_a_second(clock: Clock, screen: Screen) -> None:
    reporter = TerminalReporter(Terminal(environ={"TERM": "xterm"}))
    reporter.progress("saving", done=0)
    clock.now += 1
    for done in range(1000):
        clock.now += 0.001
        reporter.progress("saving", done=done)
    assert screen.getvalue().count("\r") <= 11


@pytest.mark.parametrize(
    ("quiet", "is_terminal", "term"), [(True, True, "xterm"), (False, False, "xterm"), (False, True, "dumb")]
)
def test_nobody_who_did_not_ask_gets_progress(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, quiet: bool, is_terminal: bool, term: str
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", screen)
    reporter = TerminalReporter(Terminal(quiet=quiet, environ={"TERM": term}))
    reporter.progress("saving", done=0)
    clock.now += 5
    reporter.progress("saving", done=1)
    assert screen.getvalue() == ""


def test_quiet_silences_notes_and_never_warnings(screen: Screen) -> None:
    reporter = TerminalReporter(Terminal(quiet=True))
    reporter.note("waiting")
    reporter.warn("'x\x1b[2J' is not protected")
    assert screen.getvalue() == "Warning: 'x\\x1b[2J' is not protected\n"


def test_a_closed_standard_error_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Screen):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    TerminalReporter(Terminal()).warn("nobody reads this")


def test_without_a_total_there_is_no_time_left() -> None:
    assert describe("reading", done=3, total=0, unit="files", extra=0, elapsed_s=1) == "Reading 3 files"
    assert describe("copying", done=10**6, total=4 * 10**6, unit="bytes", extra=0, elapsed_s=2) == (
        "Copying 1.0 MB of 4.0 MB, 6 s left"
    )
