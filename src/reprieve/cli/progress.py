"""Draw what the core reports: one progress line on standard error, notes and warnings above it."""

from __future__ import annotations

import os
import time

from reprieve.cli import humane
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.cli.terminal import Terminal

PATIENCE_S = 0.3  # shorter work is over before a person could read about it
INTERVAL_S = 0.1
_WORDS = {"checkpoint": "Saving", "restore": "Restoring"}  # what the core calls its stages, as a person would


class TerminalReporter(Reporter):
    """Progress only where a person watches (standard error is a terminal, no -q); notes and warnings always."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._stage = ""
        self._began = self._drawn = 0.0
        self._is_on_screen = False

    def progress(self, stage: str, *, done: int, total: int = 0, unit: str = "files", extra: int = 0) -> None:
        if not self._terminal.draws_progress:
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._drawn = stage, now, 0.0
        if now - self._began < PATIENCE_S or now - self._drawn < INTERVAL_S:
            return
        self._drawn = now
        self._is_on_screen = True
        text = describe(stage, done=done, total=total, unit=unit, extra=extra, elapsed_s=now - self._began)
        self._terminal.raw_error(f"\r{text[: self._columns() - 1]}\x1b[K")

    def finished(self, stage: str) -> None:
        self._stage = ""
        self.clear()

    def clear(self) -> None:
        """Take the progress line off the screen."""
        if self._is_on_screen:
            self._is_on_screen = False
            self._terminal.raw_error("\r\x1b[K")

    def note(self, text: str) -> None:
        self.clear()
        if not self._terminal.quiet:
            self._terminal.error_line(f"Note: {humane.safe(text)}")

    def warn(self, text: str) -> None:
        self.clear()
        self._terminal.error_line(f"Warning: {humane.safe(text)}")

    def ask(self, question: str) -> bool:
        self.clear()
        return self._terminal.confirm(humane.safe(question))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(2).columns or 80
        except OSError:
            return 80


def describe(stage: str, *, done: int, total: int, unit: str, extra: int, elapsed_s: float) -> str:
    """The progress line: Saving 1,200 of 5,000 files, 20 MB, 12 s left"""
    if unit == "bytes":
        amount = f"{humane.size(done)} of {humane.size(total)}" if total else humane.size(done)
    else:
        amount = f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}"
        if extra:
            amount += f", {humane.size(extra)}"
    if 0 < done < total:
        amount += f", {humane.span(elapsed_s * (total - done) / done)} left"
    return f"{_WORDS.get(stage, stage[:1].upper() + stage[1:])} {amount}"
