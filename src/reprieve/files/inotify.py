"""Follow a tree with Linux's inotify: one watch per directory, new directories as they appear, all again on overflow.

    mkdir a ──▶ event ──▶ watch a, list a ──▶ watch a/b …      what is made in `a` before its watch is there is listed,
                                                             what is made after it is an event: nothing in between

Through ctypes: the three calls need no library, and what matters (overflow, moves, limits) is what libraries differ in.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct

from reprieve.files import native
from reprieve.files.watch import OutOfWatches, is_passing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.watch import Ignores
    from reprieve.model.reporter import Reporter

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED, _IS_DIR, _ONLY_DIR = 0x4000, 0x8000, 0x40000000, 0x01000000
_WANTED = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIR
_EVENT = struct.Struct("iIII")
_READ = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
SETTLE_S = 0.3


class InotifyWatcher:
    """See `files.watch.Watcher`."""

    def __init__(self, root_fd: int, *, ignores: Ignores, cross_mounts: bool, wake_fd: int, reporter: Reporter) -> None:
        self.settle_s = SETTLE_S
        self._root_fd, self._ignores, self._cross_mounts = root_fd, ignores, cross_mounts
        self._reporter, self._wake_fd = reporter, wake_fd
        self._device = os.fstat(root_fd).st_dev
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._start()

    def wait(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        return self._fd in ready and self._take()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- which directories

    def _start(self) -> None:
        """Watch everything anew. What is queued is given up: the caller looks at the whole tree after this."""
        self.close()
        self._paths: dict[int, bytes] = {}  # by watch
        self._watches: dict[bytes, int] = {}  # by path
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OutOfWatches(f"inotify cannot be used ({os.strerror(ctypes.get_errno())})")
        try:
            self._follow(b"")
        except BaseException:
            self.close()
            raise

    def _follow(self, top: bytes) -> None:
        """Watch a directory and all below it. One that is gone again, or closed to us, is passed over."""
        waiting = [top]
        while waiting:
            path = waiting.pop()
            try:
                fd = native.open_beneath(self._root_fd, path, _DIRECTORY) if path else os.dup(self._root_fd)
            except OSError as e:
                if e.errno in (*_GONE, errno.EACCES, errno.EPERM):
                    continue  # no longer there; or a gap, which the checkpoint names
                raise
            try:
                if os.fstat(fd).st_dev != self._device and not self._cross_mounts:
                    continue
                if not self._watch(fd, path):
                    continue
                # after the watch, so that nothing can slip in between
                with os.scandir(fd) as names:
                    for entry in names:
                        if entry.is_dir(follow_symlinks=False):
                            name = os.fsencode(entry.name)
                            child = path + b"/" + name if path else name
                            if not self._ignores(child, True):
                                waiting.append(child)
            except OSError as e:
                if e.errno not in (*_GONE, errno.EACCES):
                    raise
            finally:
                os.close(fd)

    def _watch(self, fd: int, path: bytes) -> bool:
        # by descriptor: no link is followed, and no path is too long
        watch = self._libc.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % fd, _WANTED)
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSPC, errno.ENOMEM):
                raise OutOfWatches(f"the system allows no more inotify watches (fs.inotify.max_user_watches{_limit()})")
            if code == errno.EACCES:
                return False
            raise OutOfWatches(f"inotify cannot be used here ({os.strerror(code)})")
        old = self._paths.get(watch)
        if old is not None:
            self._watches.pop(old, None)
        self._paths[watch], self._watches[path] = path, watch
        return True

    def _forget(self, top: bytes) -> None:
        """A directory went elsewhere, perhaps out of the tree: what happens in it is not ours until it is back."""
        below = top + b"/"
        for path in [path for path in self._watches if path == top or path.startswith(below)]:
            watch = self._watches.pop(path)
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._fd, watch)  # fails if it is gone already, which is what is wanted

    # -- what happened

    def _take(self) -> bool:
        """Read all that is queued; whether any of it is about the tree."""
        has_changed = False
        while True:
            try:
                data = os.read(self._fd, _READ)
            except BlockingIOError:
                return has_changed
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                if mask & _OVERFLOW:
                    self._reporter.note("more changed at once than the system could tell; looking at everything again")
                    self._start()
                    return True
                has_changed |= self._one(watch, mask, name)
            if len(data) < _READ // 2:
                return has_changed  # what comes now is for the next call: a storm must not keep us here

    def _one(self, watch: int, mask: int, name: bytes) -> bool:
        above = self._paths.get(watch)
        if mask & _IGNORED:
            if above is not None:
                del self._paths[watch]
                if self._watches.get(above) == watch:
                    del self._watches[above]
            return False
        if above is None:
            return False  # of a directory that went elsewhere: its going was an event of its own
        path = above + b"/" + name if above and name else name or above
        is_dir = bool(mask & _IS_DIR) or not name
        if path and self._ignores(path, is_dir):
            return False
        if not is_dir and is_passing(name):
            return False
        if mask & _IS_DIR and name:
            if mask & _MOVED_FROM:
                self._forget(path)
            # also what went: of two that change places, that may be the last word of both names
            if mask & (_CREATE | _MOVED_FROM | _MOVED_TO) or (mask & _ATTRIB and path not in self._watches):
                self._follow(path)
        return True


def _limit() -> str:
    try:
        with open("/proc/sys/fs/inotify/max_user_watches") as file:
            return f" = {file.read().strip()}"
    except OSError:
        return ""
