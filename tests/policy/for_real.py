"""Run a catalog rule for real: captures, the command, captures again, the inverse. The engine's part, in 40 lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from policy.reading import shipped
from reprieve.policy.catalog import CommandMatch, Inverse, captures, instantiate, read_capture
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

    def take(self, match: CommandMatch, when: str) -> dict[str, str | tuple[str, ...]]:
        found: dict[str, str | tuple[str, ...]] = {}
        for capture in captures(match, when=when):
            done = subprocess.run(capture.run, cwd=self.folder, env=self.env, capture_output=True, check=False)
            found[capture.name] = read_capture(capture, done.stdout, done.returncode)
        return found

    def do(self, *argv: str, rule: str) -> Inverse:
        """Run a command as the engine would, and the commands that take it back."""
        match = shipped().match_command(argv)
        assert match is not None and match.rule.id == rule, match
        assert match.rule.tested, f"{rule} has a test; say so"
        captured = self.take(match, BEFORE)
        self.run(*argv)
        captured |= self.take(match, AFTER)
        return instantiate(match, captured)

    def undo(self, inverse: Inverse, *, ok: bool = True) -> None:
        assert inverse.steps
        for step in inverse.steps:
            self.run(*step.argv, stdin=step.stdin, ok=ok)


def steps(inverse: Inverse) -> Sequence[tuple[str, ...]]:
    """Just the argument lists."""
    return [step.argv for step in inverse.steps]
