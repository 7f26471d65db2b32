"""A folder where agents and a person take turns, in this process: windows are opened and closed as hooks do it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprieve.app import finding
from reprieve.app.workspace import Workspace
from reprieve.errors import Conflict
from reprieve.model.plan import Plan, Report
from reprieve.model.reporter import Reporter

TEXT = "".join(f"line {n}\n" for n in range(1, 31))

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "An Agent",
    "GIT_AUTHOR_EMAIL": "agent@example.org",
    "GIT_COMMITTER_NAME": "An Agent",
    "GIT_COMMITTER_EMAIL": "agent@example.org",
    "GIT_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
}


class Desk:
    """One workspace and who works in it. Close it, or use it as a context manager."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ws: Workspace = finding.open_workspace(str(root), create=True, reporter=Reporter())

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.ws.close()

    def checkpoint(self, label: str = "") -> str:
        return self.ws.checkpoint(label).entry.id

    @contextmanager
    def window(self, actor: str = "claude-code:s1", step: str = "call:1", **more: Any) -> Iterator[None]:
        """What happens inside is that actor's."""
        _, window = self.ws.open_window(actor, step, **more)
        yield
        self.ws.close_window(window)

    def agent(self, script: str, actor: str = "claude-code:s1", step: str = "call:1") -> None:
        """An agent's tool call that runs a shell script."""
        with self.window(actor, step):
            self.sh(script)

    def sh(self, script: str, *, cwd: Path | None = None, check: bool = True) -> str:
        """A shell script in the folder; what it does is whoever's turn it is."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | GIT
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=cwd or self.root,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def put(self, name: str, number: int, word: str) -> None:
        """Replace a line of a file."""
        path = self.root / name
        lines = path.read_text().splitlines(keepends=True)
        lines[number - 1] = f"{word}\n"
        path.write_text("".join(lines))

    def line(self, name: str, number: int) -> str:
        return (self.root / name).read_text().splitlines()[number - 1]

    def rollback(self, ref: str | None = None, **how: Any) -> tuple[Plan, Report]:
        plan, report = self.ws.rollback(ref, **how)
        assert report is not None
        return plan, report

    def refused(self, ref: str | None = None, **how: Any) -> dict[str, str]:
        """The reasons, by path, for which a rollback was refused; fails if it was not."""
        try:
            self.ws.rollback(ref, **how)
        except Conflict as conflict:
            reasons: dict[str, str] = conflict.data["reasons"]
            return reasons
        raise AssertionError("it was not refused")

    def undo(self, step: str | None = None, **how: Any) -> tuple[Plan, Report]:
        plan, report = self.ws.undo(step, **how)
        assert report is not None
        return plan, report

    def who(self, since: str | None = None) -> dict[str, str]:
        """Path → actor, as status says."""
        return {os.fsdecode(change.path): change.actor for change in self.ws.status(since).changes}


class Gate:
    """Where a process waits (`read x < PATH`) until it is let through. Opening it never waits for anyone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def open(self) -> None:
        """Let one process through."""
        os.write(self._fd, b"go\n")

    def __del__(self) -> None:
        os.close(self._fd)
