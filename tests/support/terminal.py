"""Run the command line at a terminal: a pseudo-terminal that answers questions."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path


def at_terminal(
    *args: str,
    cwd: Path,
    answer: str = "",
    question: str = "[y/N] ",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> tuple[int, str]:
    """The exit code and all that was on the screen. `answer` is typed as soon as the question stands there."""
    controller, screen = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "PAGER": "cat", **(env or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "reprieve", *args],
        cwd=cwd,
        env=environ,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # the session's own, as that of a shell is
    )
    os.close(screen)
    seen = b""
    is_answered = False
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            ready, _, _ = select.select([controller], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                process.send_signal(signal.SIGKILL)
                raise AssertionError(f"still running after {timeout_s} s:\n{seen.decode(errors='replace')}")
            try:
                data = os.read(controller, 65536)
            except OSError:  # Linux says EIO when the other end is closed
                break
            if not data:
                break
            seen += data
            if not is_answered and question.encode() in seen:
                os.write(controller, answer.encode())
                is_answered = True
    finally:
        os.close(controller)
        process.wait()
    return process.returncode, seen.decode(errors="replace").replace("\r\n", "\n")
