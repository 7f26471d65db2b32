"""Show long answers through the person's pager."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from reprieve.cli.terminal import Terminal

OPTIONS = "-FIRXK"  # quit if it fits, smart case, colours, keep the screen, Ctrl-C quits


class Paged:
    """Standard output goes through $PAGER while this is open; without a person at the other end it does nothing."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Paged:
        terminal = self._terminal
        command = choose(terminal.environ) if terminal.is_terminal and not terminal.json else []
        if not command:
            return self
        terminal.flush()
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, env={"LESS": OPTIONS, "LESSCHARSET": "utf-8", **terminal.environ}
            )
        except OSError as error:
            terminal.error_line(f"Note: the pager '{command[0]}' could not be started: {error.strerror}")
            return self
        terminal.sink = self._process.stdin
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._terminal.sink = None
        self._terminal.is_closed = False  # leaving the pager early closes its pipe, not the terminal
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the person has seen enough
            self._process.stdin.close()
        while self._process.poll() is None:
            try:
                self._process.wait()
            except KeyboardInterrupt:
                continue  # Ctrl-C is the pager's own business


def choose(environ: Mapping[str, str]) -> list[str]:
    """The pager's command line; empty for none."""
    chosen = environ.get("PAGER")
    if chosen is None:
        return ["less"] if shutil.which("less") and environ.get("TERM", "dumb") != "dumb" else []
    words = shlex.split(chosen)
    return [] if words in ([], ["cat"]) else words
