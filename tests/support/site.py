"""A place where a story happens: a tree, a store beside it, and the commands that work on them in forks.

Used by the crash, shortage, damage and concurrency tests. Everything lies below one directory, on memory where the
machine has some, and is removed by `close`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import worlds
from support.forkserver import Fault, ForkServer, Ran
from support.tree import Fingerprint, diff_fingerprints, erase, fingerprint


class Site:
    """One world. `run` never fails by itself; `ok` wants exit code 0."""

    def __init__(self, server: ForkServer, *, base: Path | None = None, home: Path | None = None) -> None:
        self.server = server
        self.base = Path(tempfile.mkdtemp(prefix="reprieve-site-", dir=base or worlds.scratch_base()))
        self.tree = self.base / "tree"
        self.home = home or self.base / "home"
        self.plant = ""  # a bug to be planted into every command (support/plants.py)
        self._by_resident = False

    def env(self) -> dict[str, str]:
        """What commands need to know."""
        return {
            "REPRIEVE_HOME": str(self.home),
            "REPRIEVE_CONFIG": str(self.base / "config.toml"),
            "HOME": str(self.base),
            "NO_COLOR": "1",
        }

    def run(self, *argv: str, fault: Fault | None = None, timeout: float = 60.0) -> Ran:
        """Run a command in the tree, with a fault or none."""
        if self._by_resident and fault is None and not self.plant:
            return self.server.run_resident(argv, cwd=self.tree, env=self.env(), timeout=timeout)
        return self.server.run(
            argv,
            cwd=self.tree,
            env=self.env(),
            fault=fault,
            roots=[self.tree, self.home],
            plant=self.plant,
            timeout=timeout,
        )

    @contextmanager
    def in_one_process(self) -> Iterator[None]:
        """What is run in here shares a process with what was run so before (ForkServer.run_resident).

        For what sets a world up and what looks at it; struck commands, and those of planted bugs, never do.
        """
        before, self._by_resident = self._by_resident, True
        try:
            yield
        finally:
            self._by_resident = before

    def spawn(self, *argv: str, fault: Fault | None = None) -> int:
        """Start a command and go on; `server.wait` ends it."""
        return self.server.spawn(
            argv, cwd=self.tree, env=self.env(), fault=fault, roots=[self.tree, self.home], plant=self.plant
        )

    def ok(self, *argv: str) -> Ran:
        """Run a command that has no reason to fail."""
        ran = self.run(*argv)
        assert ran.code == 0, ran
        return ran

    def answer(self, *argv: str) -> Any:
        """The JSON answer of a command that has no reason to fail."""
        return self.ok(*argv, "--json").json

    def checkpoint(self, label: str) -> str:
        """Take a checkpoint; its id."""
        return str(self.answer("checkpoint", label)["checkpoint"]["id"])

    def look(self) -> Fingerprint:
        """What the tree is now."""
        return fingerprint(self.tree)

    def differs(self, wanted: Fingerprint, *, ignore: Sequence[str] = ()) -> list[str]:
        """How the tree differs from what is wanted; empty if it does not."""
        return diff_fingerprints(wanted, self.look(), ignore=ignore, limit=6)

    def litter(self) -> list[str]:
        """What the store holds that it should not hold when nobody works: scratch, wide modes, unknown names."""
        found = []
        if not self.home.exists():
            return []
        for path in [self.home, *sorted(self.home.rglob("*"))]:
            name, st = str(path.relative_to(self.home)), path.lstat()
            wide = stat.S_IMODE(st.st_mode) & 0o077
            if wide:
                found.append(f"{name} has mode {stat.S_IMODE(st.st_mode):04o}")
            if name.startswith("tmp/"):
                found.append(f"{name} left behind")
            if not _is_known(name):
                found.append(f"{name} is no part of the format")
        return found

    def close(self) -> None:
        """Remove everything."""
        erase(self.base)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_FILES = frozenset(
    {".", "format", "store.db", "store.db-journal", "ballast", "effects.db", "effects.db-journal", "effects.key"}
)
_FOLDERS = frozenset({"packs", "index", "locks", "witness", "runs", "promises", "tickets"})


def _is_known(name: str) -> bool:
    first, _, rest = name.partition("/")
    if not rest:
        return first in _FILES or first in _FOLDERS or first == "tmp"
    return first in _FOLDERS and "/" not in rest and (first != "packs" or rest.endswith(".pack"))


def is_root() -> bool:
    """Whether mounts and foreign owners can be had."""
    return os.geteuid() == 0
