"""How the tests of policy read a command line: one catalog, one workspace that exists only as text."""

from __future__ import annotations

import functools
from pathlib import Path

from reprieve.policy.catalog import Catalog, load
from reprieve.policy.classes import RESTORABLE, rank
from reprieve.policy.scene import ShellReading
from reprieve.policy.shell import read_shell

ROOT = "/w/p"
CORPUS = Path(__file__).parent / "corpus"


@functools.cache
def shipped() -> Catalog:
    """The catalog as it is shipped."""
    return load()


def read(text: str, *, cwd: str = ROOT, tracked: tuple[str, ...] = ()) -> ShellReading:
    """A command line in the workspace."""
    return read_shell(text, root=ROOT, cwd=cwd, catalog=shipped(), tracked=tracked)


def lines(name: str) -> list[str]:
    """The command lines of a corpus; ⏎ in them is a new line."""
    found = (CORPUS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("⏎", "\n") for line in found if line and not line.startswith("# ")]


def is_flagged(reading: ShellReading) -> bool:
    """Whether it changes data, or may."""
    return rank(reading.cls) >= rank(RESTORABLE)
