"""Everything that goes to or comes from the person: text, colour, the pager, the question.

The one place that decides about colour, about being interactive, and about what --json and --quiet silence.
"""

from __future__ import annotations

import os
import sys

from reprieve.cli import humane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import IO

    from reprieve.cli.progress import TerminalReporter
    from reprieve.errors import ReprieveError
    from reprieve.model.reporter import Reporter

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "error": "1;31"}


class Terminal:
    """What a command talks to. Plain lines, or with --json one object at the end."""

    def __init__(self, *, json: bool = False, quiet: bool = False, environ: Mapping[str, str] | None = None) -> None:
        self.json = json
        self.quiet = quiet
        self.fields: dict[str, object] = {}
        self.has_answered = False
        self.environ = os.environ if environ is None else environ
        self.sink: IO[bytes] | None = None  # the pager's standard input
        self.is_closed = False  # nobody reads standard output any more
        self._problem: OSError | None = None  # why it cannot be written to, unless the reader just went away
        self._reporter: TerminalReporter | None = None

    @property
    def reporter(self) -> Reporter:
        """What the core reports to."""
        if self._reporter is None:
            from reprieve.cli.progress import TerminalReporter

            self._reporter = TerminalReporter(self)
        return self._reporter

    # What a command says

    def line(self, text: str = "", *styles: str) -> None:
        """A line of the answer. With --json nothing."""
        if not self.json:
            self.raw((self.styled(text, *styles) + "\n").encode(self._encoding, "backslashreplace"))

    def say(self, text: str = "", *styles: str) -> None:
        """A line that is pleasant to have and not the answer: hints, what to do next. Not with --quiet."""
        if not self.quiet:
            self.line(text, *styles)

    def answer(self, **fields: object) -> None:
        """Fields of the JSON object. Without --json nothing."""
        self.fields.update(fields)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, to the pager or standard output. A reader that has gone away is not an error."""
        if self._reporter is not None:
            self._reporter.clear()  # the progress line gives way to the answer
        sink = self.sink or (sys.stdout.buffer if sys.stdout else None)
        if sink is None or self.is_closed:
            return
        try:
            sink.write(data)
        except OSError as error:
            # The work goes on: a rollback must not stop half-way because its report has nowhere to go
            self.is_closed = True
            self._problem = None if isinstance(error, BrokenPipeError) else error

    def finish(self, command: str) -> None:
        """Write the JSON object if one is due, and flush."""
        if self.json and not self.has_answered:
            self._object({"ok": True, "command": command, **self.fields})
        self.flush()

    def flush(self) -> None:
        """Hand everything over. Raises OSError when standard output cannot take it (a full disk)."""
        if sys.stdout:
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                self.is_closed = True
            except OSError as error:
                self.is_closed = True
                self._problem = error
        if self.is_closed and sys.stdout:
            # Python flushes once more at exit and would complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    # What goes wrong

    def fail(self, command: str, error: ReprieveError) -> None:
        """Show an error: the fact, what belongs to it, what to do next."""
        if self._reporter is not None:
            self._reporter.clear()
        if self.json:
            from reprieve.app.render import error_json

            self._object({"ok": False, "command": command or None, **self.fields, "error": error_json(error)})
            return
        red = self.styled_error
        self.error_line(red("Error:", "error") + " " + humane.safe(error.message))
        for detail in error.details:
            self.error_line("  " + humane.safe(detail))
        for hint in error.hints:
            self.error_line(red("Hint:", "cyan") + " " + humane.safe(hint))

    def _object(self, fields: Mapping[str, object]) -> None:
        import json

        self.has_answered = True
        # ASCII only: undecodable bytes of a name stay readable as \udcXX whatever the encoding of standard output
        self.raw((json.dumps(fields, ensure_ascii=True) + "\n").encode("ascii"))

    def error_line(self, text: str) -> None:
        self.raw_error(text + "\n")

    def raw_error(self, text: str) -> None:
        """Text to standard error; a reader that has gone away must not stop the work."""
        if sys.stderr is None:
            return
        try:
            encoding = sys.stderr.encoding or "utf-8"
            sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()
        except OSError:
            self.quiet = True

    # What the terminal is

    def styled(self, text: str, *styles: str) -> str:
        """Text with colour, where standard output has colour."""
        return _paint(text, styles) if styles and self.has_colour else text

    def styled_error(self, text: str, *styles: str) -> str:
        return _paint(text, styles) if styles and _has_colour(sys.stderr, self.environ) else text

    @property
    def has_colour(self) -> bool:
        return not self.json and _has_colour(sys.stdout, self.environ)

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads standard output."""
        return _is_tty(sys.stdout)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked: both ends are a terminal, and the answer is not for a program."""
        return not self.json and _is_tty(sys.stdin) and _is_tty(sys.stdout)

    @property
    def draws_progress(self) -> bool:
        return not self.quiet and _is_tty(sys.stderr) and self.environ.get("TERM") != "dumb"

    def confirm(self, question: str) -> bool:
        """Ask a person; no when nobody can be asked. The harmless answer is the default."""
        if not self.is_interactive:
            return False
        self.raw(f"{question} [y/N] ".encode(self._encoding, "backslashreplace"))
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def paged(self) -> AbstractContextManager[object]:
        """`with terminal.paged():` shows what is said inside through the pager, where a person reads."""
        from reprieve.cli.pager import Paged

        return Paged(self)

    @property
    def _encoding(self) -> str:
        return (sys.stdout.encoding if sys.stdout else "") or "utf-8"


def _is_tty(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # closed


def _has_colour(stream: IO[str] | None, environ: Mapping[str, str]) -> bool:
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return _is_tty(stream) and environ.get("TERM") != "dumb"


def _paint(text: str, styles: tuple[str, ...]) -> str:
    return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m" if text else text
