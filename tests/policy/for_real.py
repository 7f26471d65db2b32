"""Run a catalog rule for real: captures, the command, captures again, the inverse. The engine's part, in 50 lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from policy.reading import shipped
from reprieve.policy.catalog import Capture, CommandMatch, Inverse, captures, instantiate, read_capture
from reprieve.policy.catalog.model import AFTER, BEFORE


class World:
    """A folder and an environment in which commands run."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.env = {**os.environ, **(env or {})}

    def run(self, *argv: str, stdin: str = "", ok: bool = True) -> str:
        data = stdin.encode("utf-8", "surrogateescape")
        done = subprocess.run(argv, cwd=self.folder, env=self.env, input=data, capture_output=True, check=False)
        assert done.returncode == 0 or not ok, (argv, done.stderr.decode(errors="replace"), done.stdout[:500])
        return done.stdout.decode("utf-8", "surrogateescape")

    def look(self, capture: Capture) -> str | tuple[str, ...]:
        done = subprocess.run(capture.run, cwd=self.folder, env=self.env, capture_output=True, check=False)
        return read_capture(capture, done.stdout, done.returncode, done.stderr)

    def take(self, match: CommandMatch, when: str, known: dict[str, str | tuple[str, ...]]) -> None:
        for capture in captures(match, when=when, known=known):
            known[capture.name] = self.look(capture)

    def do(self, *argv: str, rule: str) -> Inverse:
        """Run a command as the engine would, and the commands that take it back."""
        match = shipped().match_command(argv)
        assert match is not None and match.rule.id == rule, match
        assert match.rule.tested, f"{rule} has a test; say so"
        captured: dict[str, str | tuple[str, ...]] = {}
        self.take(match, BEFORE, captured)
        self.run(*argv)
        self.take(match, AFTER, captured)
        return instantiate(match, captured)

    def undo(self, inverse: Inverse, *, ok: bool = True) -> None:
        assert inverse.steps
        for step in inverse.steps:
            self.run(*step.argv, stdin=step.stdin, ok=ok)
        for look in inverse.looks if ok else ():
            now = self.look(look.capture)
            assert set(now) == set(look.before) if isinstance(now, tuple) else now == look.before, look


def steps(inverse: Inverse) -> Sequence[tuple[str, ...]]:
    """Just the argument lists."""
    return [step.argv for step in inverse.steps]
