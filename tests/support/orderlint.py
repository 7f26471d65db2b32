"""Read an strace log and say where durability is taken for granted: the order of writes, syncs, renames and commits.

    a commit is the truncation of the database's journal; an acknowledgement is a write to standard output, or the end
    at a commit            bytes of packs, and names of new packs, are synced; what was renamed into the tree is synced
    at a rename            what becomes a part of the store is synced before it gets its name
    at an acknowledgement  nothing that belongs to the store is unsynced, no name is

The cache (index/), scratch, locks and the journal itself are not the store's truth and may be lost.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TRACED = (
    "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fsync,fdatasync,syncfs,rename,renameat,renameat2,"
    "openat,openat2,open,creat,link,linkat,exit_group"
)
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)\)\s*=\s*(-?\d+)")
_FD = re.compile(r"(\d+)<([^>]*)>")
_AT = re.compile(r'(?:(AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_NO_TRUTH = ("index/", "locks/", "tmp/", "runs/", "witness/", "store.db-journal")


def lint(log: Path, home: Path, tree: Path) -> tuple[int, int, list[str]]:
    """(commits, acknowledgements, violations) of one traced command."""
    return _Lint(os.path.realpath(home), os.path.realpath(tree)).read(log)


class _Lint:
    def __init__(self, home: str, tree: str) -> None:
        self.home, self.tree = home, tree
        self.dirty: dict[str, int] = {}  # file of the store -> line of its last unsynced write
        self.names: dict[str, int] = {}  # new name in the store -> line; its directory is not synced yet
        self.moved: dict[str, int] = {}  # name in the tree -> line of its unsynced rename
        self.known: set[str] = {str(p) for p in Path(home).rglob("*")} if os.path.isdir(home) else set()
        self.violations: list[str] = []
        self.commits = self.acks = 0

    def read(self, log: Path) -> tuple[int, int, list[str]]:
        for number, line in enumerate(_whole_lines(log), 1):
            found = _LINE.match(line)
            if found and int(found[4]) >= 0:
                self._call(number, found[2], found[3], int(found[4]), line)
        self._acknowledge(-1)
        return self.commits, self.acks, self.violations

    def _call(self, n: int, call: str, args: str, result: int, line: str) -> None:
        fd = _FD.match(args)
        path = fd[2] if fd else ""
        if call in ("write", "pwrite64", "writev", "pwritev", "pwritev2"):
            if fd and fd[1] == "1":
                self._acknowledge(n)
            elif self._is_truth(path):
                self.dirty[path] = n
        elif call == "ftruncate":
            if path == f"{self.home}/store.db-journal":
                self._commit(n)
            elif self._is_truth(path):
                self.dirty[path] = n
        elif call in ("fsync", "fdatasync"):
            self.dirty.pop(path, None)
            for name in [k for k in self.names if os.path.dirname(k) == path]:
                del self.names[name]
            for name in [k for k in self.moved if k == path or os.path.dirname(k) == path]:
                del self.moved[name]
        elif call == "syncfs":
            for kept in (self.dirty, self.names, self.moved):
                for name in [k for k in kept if _same_device(k, path)]:
                    del kept[name]
        elif call.startswith("rename"):
            old, new = [_joined(m) for m in _AT.finditer(args)][:2]
            self._rename(n, old, new)
        elif call in ("openat", "openat2", "open", "creat") and "O_CREAT" in args:
            opened = re.search(r"=\s*\d+<([^>]*)>", line)
            if opened and self._is_truth(opened[1]) and opened[1] not in self.known:
                self.known.add(opened[1])
                self.names[opened[1]] = n

    def _rename(self, n: int, old: str, new: str) -> None:
        if self._is_truth(new):
            if old in self.dirty or f"scratch {old}" in self.dirty:
                self.violations.append(f"line {n}: {self._short(new)} gets its name before its bytes are synced")
            self.names[new] = n
        elif new.startswith(self.tree + "/") and "/.reprieve-" not in new[len(self.tree) :]:
            self.moved[new] = n

    def _commit(self, n: int) -> None:
        self.commits += 1
        packs = [p for p in (*self.dirty, *self.names) if p.startswith(f"{self.home}/packs")]
        self.violations += [f"line {n}: committed while {self._short(p)} is not synced" for p in packs]
        self.violations += [
            f"line {n}: committed while the rename of {m!r} is not synced" for m in list(self.moved)[:1]
        ]
        self.moved.clear()

    def _acknowledge(self, n: int) -> None:
        self.acks += 1
        for p in (*self.dirty, *self.names, *self.moved):
            self.violations.append(f"line {n}: acknowledged while {self._short(p)} is not synced")
        for kept in (self.dirty, self.names, self.moved):
            kept.clear()

    def _is_truth(self, path: str) -> bool:
        if not path.startswith(self.home + "/"):
            return False
        return not path[len(self.home) + 1 :].startswith(_NO_TRUTH)

    def _short(self, path: str) -> str:
        return path.removeprefix(self.home + "/")


def _joined(found: re.Match[str]) -> str:
    name = found[3].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
    return os.path.normpath(name if name.startswith("/") else f"{found[2] or os.getcwd()}/{name}")


def _same_device(a: str, b: str) -> bool:
    def device(path: str) -> int:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        return os.stat(path).st_dev

    return device(a) == device(b)


def _whole_lines(log: Path) -> list[str]:
    """The log with calls that strace has cut in two (another thread spoke in between) put together again."""
    begun: dict[str, str] = {}
    lines = []
    for line in log.read_text(errors="replace").splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
        elif rest.startswith("<...") and pid in begun:
            lines.append(f"{pid} {begun.pop(pid)}{rest.partition('resumed>')[2]}")
        else:
            lines.append(f"{pid} {rest}")
    return lines
