"""A copy of a checkpoint in a directory of its own, to try things out in: made, changed into another, removed.

The folder that is protected is never touched. Between two checkpoints only what differs is moved; what a program left
in the copy goes as well, because the copy is looked at before each change.
"""

from __future__ import annotations

import os
import stat
import tempfile

from reprieve.errors import Refused
from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.files.meta import loosen
from reprieve.files.restore import Restore
from reprieve.files.snapshot import Limits, take_snapshot
from reprieve.model.change import Gap
from reprieve.model.entry import BLOCK, CHAR, SOCKET, Entry
from reprieve.model.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprieve.store.protocols import BlobStore, Buffer

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES = 5  # to empty a folder that a dying process still writes to


class Scratch:
    """A private folder (0700) outside `root` with the copy in it. `fill` it, use it, `erase` it."""

    def __init__(self, root: bytes, *, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.top = tempfile.mkdtemp(prefix=b"reprieve-", dir=outside(root))
        self.store = os.path.join(self.top, b"store")  # for what runs in the copy: not the person's own
        # under the name of the original: programs may look at the name of the folder that they are in
        self.copy = os.path.join(self.top, b"copy", os.path.basename(root) or b"root")
        os.mkdir(os.path.dirname(self.copy), 0o700)
        self._fd = -1
        self._index: Buffer | None = None

    def fill(self, target: Buffer, *, forgotten: Iterable[bytes] = ()) -> list[Gap]:
        """Make the copy what `target` (a packed tree) says, exactly; what cannot be made is returned.

        Raises OSError, StoreCorrupted.
        """
        left_out = _not_makeable(target, frozenset(forgotten))
        if left_out:
            target = native.merge(target, tree.pack([]), [gap.path for gap in left_out], {}, bytes(16))
        if self._index is not None:
            try:
                lost = self._move_to(target)
            except OSError:
                lost = None  # what ran in it left something that cannot be moved: begin afresh
            if lost is not None:
                return left_out + lost
        self._begin()
        lost = self._move_to(target)
        if lost is None:
            raise Refused(
                f"something changes the scratch copy '{os.fsdecode(self.copy)}' while it is made",
                hints=["end what still runs in it, then run the same command again"],
            )
        return left_out + lost

    def erase(self) -> None:
        """Remove everything, whatever modes it was given, following no link and entering no mount. Raises OSError."""
        self._close()
        for attempt in range(_TRIES):
            try:
                _erase(self.top)
                return
            except FileNotFoundError:
                if not os.path.lexists(self.top):
                    return
            except OSError:
                if attempt == _TRIES - 1:
                    raise

    def _begin(self) -> None:
        self._close()
        if os.path.lexists(self.copy):
            _erase(self.copy)
        os.mkdir(self.copy, 0o700)
        self._fd = os.open(self.copy, _DIRECTORY)
        self._index = self._look(None)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._index = -1, None

    def _look(self, last: Buffer | None) -> Buffer:
        seen = take_snapshot(self._fd, last=last, put=None, limits=Limits(), reporter=Reporter())
        return seen.index

    def _move_to(self, target: Buffer) -> list[Gap] | None:
        """What could not be set, or None if something in the copy stood in the way."""
        try:
            index = self._look(self._index)
        except ValueError:
            return None  # directories turned into something else while we looked
        moves = tree.compare(index, target)
        stage = tree.STAGES + os.urandom(8).hex().encode()
        restore = Restore(
            self._fd, moves, index=index, blobs=self.blobs, stage_name=stage, reporter=Reporter(), is_durable=False
        )
        restore.prepare()
        restore.apply()
        restore.settle(lambda: None)
        if restore.conflicts:
            return None
        self._index = self._after(index, moves)
        return restore.lost

    def _after(self, index: Buffer, moves: tree.Delta) -> Buffer:
        """The index with what was moved; its hard-link groups have the checkpoint's numbers."""
        wanted = {path: after for path, _, after in moves}
        rows = []
        for path, st in zip(wanted, native.stat_many(self._fd, list(wanted)), strict=True):
            after = wanted[path]
            if after is not None and st is not None:
                # racy: written this instant, so the next look compares content
                rows.append((path, after, tree.Stat(st[4], st[5], st[3], st[10], st[11], True), 0))
        gone = [path for path, after in wanted.items() if after is None]
        return native.merge(index, tree.pack(rows), gone, {}, bytes(16))


def outside(root: bytes) -> bytes:
    """A folder for temporary files that is not in `root`: nothing may appear in the tree. Raises Refused."""
    root = os.path.realpath(root).rstrip(b"/") + b"/"
    # not tempfile.gettempdir: it tries its choice by writing to it, which may be in the tree
    wished = [os.environb.get(name, b"") for name in (b"TMPDIR", b"TEMP", b"TMP")]
    for folder in (*filter(None, wished), b"/tmp", b"/var/tmp", b"/dev/shm"):
        real = os.path.realpath(folder)
        if os.path.isdir(real) and os.access(real, os.W_OK | os.X_OK) and not (real + b"/").startswith(root):
            return real
    raise Refused(
        "every folder for temporary files is in the protected folder itself; nothing was begun",
        hints=["name another one: TMPDIR=/elsewhere reprieve …"],
    )


def _not_makeable(target: Buffer, forgotten: frozenset[bytes]) -> list[Gap]:
    is_root = os.geteuid() == 0
    return [
        Gap(path, reason) for path, entry in tree.entries(target) if (reason := _why_not(entry, forgotten, is_root))
    ]


def _why_not(entry: Entry, forgotten: frozenset[bytes], is_root: bool) -> str:
    if entry.gap:
        return f"not protected then: {entry.gap}"
    if entry.kind == SOCKET:
        return "a socket: only its program can make it"
    if entry.kind in (CHAR, BLOCK) and not is_root:
        return "a device: only root can make it"
    return "its content was forgotten" if entry.content and entry.content in forgotten else ""


def _erase(top: bytes) -> None:
    above = os.open(os.path.dirname(top), _DIRECTORY)
    try:
        _let_in(above, os.path.basename(top))
    finally:
        os.close(above)
    root_fd = os.open(top, _DIRECTORY)
    beneath = Beneath(root_fd)
    try:
        device = os.fstat(root_fd).st_dev
        order = [b""]
        for path in order:  # grows while it is walked: a directory comes before what is in it
            fd = beneath.dir(path)
            for name in map(os.fsencode, os.listdir(fd)):
                st = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISDIR(st.st_mode):
                    os.unlink(name, dir_fd=fd)
                elif st.st_dev == device:  # rmdir will refuse a mount, and say so
                    _let_in(fd, name)
                    order.append(path + b"/" + name if path else name)
        for path in reversed(order[1:]):
            fd, name = beneath.at(path)
            beneath.forget(path)
            os.rmdir(name, dir_fd=fd)
    finally:
        beneath.close()
        os.close(root_fd)
    os.rmdir(top)


def _let_in(dir_fd: int, name: bytes) -> None:
    door = os.open(name, _PATH_ONLY, dir_fd=dir_fd)
    try:
        loosen(door)
    finally:
        os.close(door)
