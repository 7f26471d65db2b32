"""Directories in which names change: opened for us before, and given back the mode and time that they should have."""

from __future__ import annotations

import os
import stat

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.files.meta import loosen, set_open, set_times
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprieve.store.protocols import Buffer

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Doors:
    """`touched` are the directories whose mode or time is no longer what it was."""

    def __init__(self, beneath: Beneath, index: Buffer) -> None:
        self.beneath, self.index = beneath, index
        self.touched: set[bytes] = set()
        self._loosened: set[bytes] = set()  # directories in which names may change

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """(descriptor of its directory, its name there), for changing what has that name."""
        above = tree.parent(path)
        self.loosen(above)
        self.touched.add(above)
        return self.beneath.at(path)

    def loosen(self, path: bytes) -> None:
        """Let names change in the directory at path."""
        if path not in self._loosened:
            self._loosened.add(path)
            if loosen(self.beneath.dir(path)):
                self.touched.add(path)

    def open_up(self, path: bytes) -> None:
        """Give ourselves the right to enter the directories above path, outermost first."""
        for above in reversed(list(tree.ancestors(path))):
            fd, name = self.beneath.at(above)
            door = os.open(name, _PATH_ONLY, dir_fd=fd)
            try:
                if loosen(door):
                    self.touched.add(above)
            finally:
                os.close(door)

    def finish_many(self, wanted: list[tuple[bytes, Entry]]) -> list[Gap]:
        """Owner, mode, xattrs and times of directories that were moved, deepest first; what could not be set."""
        lost: list[Gap] = []
        plain = [(path, e.mode, e.uid, e.gid, e.mtime_s, e.mtime_ns) for path, e in wanted if not e.xattrs]
        codes = dict(zip([item[0] for item in plain], native.finish_dirs(self.beneath.root_fd, plain), strict=True))
        for path, entry in wanted:
            if codes.get(path, -1):
                lost += self.finish(path, entry)  # it says what was the matter
            else:
                self.touched.discard(path)
        return lost

    def finish(self, path: bytes, entry: Entry) -> list[Gap]:
        """Owner, mode, xattrs and time of a directory that was moved; what could not be set."""
        reasons: list[str] = []
        set_open(self.beneath.dir(path), entry, lost=reasons, times=True)
        self.touched.discard(path)
        return [Gap(path, reason) for reason in reasons]

    def settle(self, wanted: Mapping[bytes, Entry | None], leave: frozenset[bytes] | set[bytes] = frozenset()) -> None:
        """Directories in which names changed get what is `wanted` of them, or else what they had."""
        due: list[tuple[bytes, Entry]] = []
        for path in sorted(self.touched - leave, key=tree.sort_key, reverse=True):
            entry = wanted[path] if path in wanted else tree.lookup(self.index, path)
            if entry is not None and entry.kind == DIR and not entry.gap:
                due.append((path, entry))
        done = self._settle_open_ones(due, wanted)
        for path, entry in due:
            if path not in done:
                self._settle(path, entry, is_wanted=path in wanted)

    def _settle_open_ones(self, due: list[tuple[bytes, Entry]], wanted: Mapping[bytes, Entry | None]) -> set[bytes]:
        """Those that stay open for us, many at once; which ones. Where one was not to be had, it is as it was."""
        # One that its owner may not enter is closed after all below it, which the others need not wait for.
        items = [
            (path, e.mode, *((e.uid, e.gid) if path in wanted else (-1, -1)), e.mtime_s, e.mtime_ns)
            for path, e in due
            if path and not e.xattrs and e.mode & 0o700 == 0o700
        ]
        codes = native.finish_dirs(self.beneath.root_fd, items)
        return {item[0] for item, code in zip(items, codes, strict=True) if not code}

    def _settle(self, path: bytes, entry: Entry, *, is_wanted: bool) -> None:
        st = self.beneath.lstat(path)
        if st is None or not stat.S_ISDIR(st.st_mode):
            return
        fd = self.beneath.dir(path)
        if is_wanted or stat.S_IMODE(st.st_mode) != entry.mode:
            reasons: list[str] = []
            set_open(fd, entry, lost=reasons)
        set_times(fd, entry)
