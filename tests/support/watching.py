"""A running `reprieve watch`: what it says, line by line, and how it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.acts import command


class Watched:
    """The process, and what it said so far. Standard error is among the lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._rest = b""
        self._at = 0  # lines that were waited for already

    def until(self, *words: str, seconds: float = 30) -> str:
        """The next line that holds all of these words."""
        deadline = time.monotonic() + seconds
        while True:
            while self._at < len(self.lines):
                line = self.lines[self._at]
                self._at += 1
                if all(word in line for word in words):
                    return line
            if not self._read(deadline - time.monotonic()):
                pytest.fail(f"waited {seconds} s for {words}; it said:\n" + "\n".join(self.lines))

    def step(self, *words: str) -> str:
        """The id of the next step whose line holds these words."""
        return self.until(*words).split()[-1]

    def end(self, number: int = signal.SIGINT) -> int:
        """Ask it to end; its exit code."""
        os.killpg(self.process.pid, number)  # as the terminal does for Ctrl-C
        return self.rest()

    def rest(self, seconds: float = 30) -> int:
        """Wait for its own end; its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(timeout=max(1.0, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """More lines; False at the end or when the time is over."""
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(out.fileno(), 65536)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode(errors="replace") for line in whole]
        return bool(data)


@contextmanager
def watching(
    project: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    is_ready: bool = True,
) -> Iterator[Watched]:
    """`reprieve watch ARGS…` in the project, under way when the block begins; killed if it outlives the block."""
    process = subprocess.Popen(
        [*before, *command("watch", *args)],
        cwd=project,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        watched = Watched(process)
        if is_ready:
            watched.until("Watching")
        yield watched
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
