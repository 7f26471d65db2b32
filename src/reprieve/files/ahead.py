"""Begin to look at a tree while the process that wants to know it is still loading its own code.

A hook has a third of its work behind it when it comes to the scan, and that third keeps one processor busy. So the
scan begins as soon as the event is read, on the other one:

    python ─▶ event ─┬─▶ modules ─▶ store ─▶ lock ─▶ look back ─┬─▶ entry
                     └─▶ scan ─────────────────────────────────┘  what is left of it is done by both

What it finds is used only if it is what a scan under the lock might have found as well:

- It began after the hook was called, so it shows the tree at a moment between the call and the answer, and that is all
  that a checkpoint promises. What a person or a program changes meanwhile is seen or is not, as during any scan; what
  was seen is read and compared again later. Times are trusted only if they were old before it began.
- Nothing of ours changed anything between its beginning and now. The workspace's lock was free then and nobody had it
  before us (`store.turns`): no checkpoint was taken, and no rollback ended, failed or was taken back. What this process
  itself finishes under the lock (`rollback.execute.recover`) gives up what was begun (`forget`).
- It was compared with the same rows: the index of the timeline's newest entry, under the limits in force, has the
  header, with checksum and tag, of the one that was used.
- It was of the same folder, with no mounts in it, and under no limits.
- It is not old: who waited for the lock looks again.

Else it is given up, and all goes on as if it had not been begun. Which folder and which index is a guess, by the root's
device and inode in the first row of each index; the store, which knows, is not open yet.
"""

from __future__ import annotations

import os
import time

from reprieve.files import native
from reprieve.files.mapped import BOOT, mapped, this_boot
from reprieve.files.mounts import may_have_mounts
from reprieve.store.turns import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.snapshot import Limits
    from reprieve.store.protocols import Buffer

    Found = tuple[bytearray, list[bytes], list[tuple[bytes, int, bool]]]

# Timestamps younger than this when the scan begins may not show a later write: the kernel's tick is up to 10 ms.
RACY_NS = 20_000_000
_OLD_NS = 1_000_000_000
_MOST = 100  # indexes to look at: 1 ms
_HEADER = 64  # bytes of a packed tree before its first row
_ROW = 128
_NODE = slice(_HEADER + 56, _HEADER + 72)  # inode and device of the first row, which is the root's


class _Begun:
    """A scan under way."""

    def __init__(self, home: str, workspace_id: str, root: bytes) -> None:
        """Raises OSError or ValueError if it cannot be begun, whatever the reason."""
        self._turn = Turn(home, workspace_id)  # before anything is looked at
        self._root_fd = -1
        self._scan: object | None = None
        self._found: Found | None = None
        try:
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._node = _node(os.fstat(self._root_fd))
            index = mapped(os.path.join(home, "index", workspace_id))
            boot = this_boot()
            if index[-BOOT:] != boot or boot == bytes(BOOT) or may_have_mounts(self._root_fd):
                raise ValueError("needs a closer look")
            self._header = bytes(index[:_HEADER])
            self._began_ns = time.monotonic_ns()
            self.floor = time.time_ns() - RACY_NS
            when = divmod(self.floor, 1_000_000_000)
            self._scan = native.scan_begin(self._root_fd, index[: _length(index)], *when)
            if self._scan is None:
                raise ValueError("not worth it")
        except BaseException:
            self.close()
            raise

    def fits(self, root_fd: int, base: Buffer, *, is_counted: bool = True) -> bool:
        """`is_counted`: whoever asks took the lock as everybody does, and is the next one to have it."""
        return (
            time.monotonic_ns() - self._began_ns < _OLD_NS
            and self._node == _node(os.fstat(root_fd))
            and self._header == base[:_HEADER]
            and (self._turn.is_next() if is_counted else self._turn.is_none())
        )

    def end(self) -> Found:
        """What was found; also if it is asked for twice."""
        if self._found is None:
            assert self._scan is not None
            self._found = native.scan_end(self._scan)
        return self._found

    def close(self) -> None:
        self._scan = None  # first: it ends the thread that uses the descriptor
        self._turn.close()
        if self._root_fd >= 0:
            os.close(self._root_fd)


_begun: _Begun | None = None


def begin(home: str, folder: str) -> None:
    """Begin to look at the workspace that a folder is in, if that is worth it. For a process that ends soon."""
    global _begun
    forget()
    try:
        root = os.path.realpath(os.fsencode(folder))
        known = _roots(os.path.join(home, "index"))
        while (id := known.get(_node(os.stat(root)))) is None:
            if root == os.path.dirname(root):
                return
            root = os.path.dirname(root)
        _begun = _Begun(home, id, root)
    except (OSError, ValueError):
        return  # nothing is wrong yet: who looks at it later in the ordinary way will say what is


def peek(root_fd: int, base: Buffer) -> Found | None:
    """What it found, for who has the lock without having counted that; it can still be taken."""
    if _begun is None or not _begun.fits(root_fd, base, is_counted=False) or may_have_mounts(root_fd):
        return None
    return _begun.end()


def take(root_fd: int, base: Buffer | None, mounts: frozenset[bytes], limits: Limits) -> tuple[int, Found] | None:
    """What a scan of that folder against that tree found, and its floor; None: there is none, or none that will do.

    For who has the workspace's lock.
    """
    global _begun
    begun, _begun = _begun, None
    if begun is None:
        return None
    try:
        excludes = limits.excludes
        is_whole = not (mounts or limits.skip or limits.only or limits.cross_mounts)
        is_whole &= excludes is None or excludes.is_empty
        if base is None or not is_whole or not begun.fits(root_fd, base):
            return None
        return begun.floor, begun.end()
    finally:
        begun.close()


def forget() -> None:
    """The tree is about to be changed by us, or nobody will ask any more."""
    global _begun
    begun, _begun = _begun, None
    if begun is not None:
        begun.close()


def _roots(folder: str) -> dict[tuple[int, int], str]:
    """Ids of workspaces that have an index, by inode and device of the root."""
    names = [name for name in os.listdir(folder) if "." not in name]  # else it is being written
    found: dict[tuple[int, int], str] = {}
    for name in names if len(names) <= _MOST else ():
        fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            node = os.pread(fd, _NODE.stop, 0)[_NODE]
        finally:
            os.close(fd)
        found[int.from_bytes(node[:8], "little"), int.from_bytes(node[8:], "little")] = name
    return found


def _length(index: memoryview) -> int:
    """Of the packed tree in an index, by its header; native code compares it with the rest."""
    count, paths, extras = (int.from_bytes(index[at : at + 8], "little") for at in (8, 16, 24))
    return _HEADER + count * _ROW + paths + extras


def _node(st: os.stat_result) -> tuple[int, int]:
    return st.st_ino, st.st_dev
