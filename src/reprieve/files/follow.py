"""Follow a tree for a long time, so that somebody who knows its past need look only at what may have changed since.

Every change gets a number that rises. Whoever saw the tree at number X looks, the next time, at what has a larger one,
and at what inotify cannot tell of (docs/design/0006-watching-instead-of-scanning.md has the argument):

    a directory's watch      names that come and go, writes, times, modes; and who opens a file
    a file's own watch       its number of links: what has a second name can be written through it, unheard
    a lease, for an instant  whether anybody has the file open for writing, or mapped; then it is looked at every time

Where there are not enough watches for all of a tree, some of its directories are looked at every time. In doubt it is
lost: then everything is looked at, as without it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from itertools import islice

from reprieve.files import native, tree
from reprieve.files.marks import Marks
from reprieve.files.told import ALONE, DEAF, WHOLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MODIFY, ATTRIB, CLOSE_WRITE, OPEN = 0x2, 0x4, 0x8, 0x20
MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_DIR = 0x2000, 0x4000, 0x8000, 0x40000000
_NO_FOLLOW, _ONLY_DIR = 0x02000000, 0x01000000
_OF_A_DIR = (
    MODIFY | ATTRIB | CLOSE_WRITE | OPEN | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | _ONLY_DIR
)
_EVENT = struct.Struct("iIII")
_READ = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_CHANGED_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # then there are events that say so
_BATCH = 128  # files that are open at once for an instant
MANY_OPENED = 500  # more than this, and they hold up every answer
_MANY = 4096
_MOST_KNOWN = 50_000  # names that are kept because something happened to them
MOST_TOLD = 4_000  # more than this, and looking at everything is as quick
# At first only so much of what may be watched is, so that some files can be added before it has to begin anew.
_AT_FIRST = 31 / 32


class Lost(Exception):
    """What happened is no longer known. `is_final`: it will be no better the next time."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class Follower:
    """One tree. Nothing is kept open but the queue of events, so that its file system can be unmounted.

    `most`: watches that it may have; `most_marks`: files that may have a mark instead. Every method raises Lost, and
    then it is of no use any more.
    """

    def __init__(self, root: bytes, identity: tuple[int, int], *, most: int, most_marks: int = 0) -> None:
        self.root, self.identity, self.most, self.most_marks = root, identity, most, most_marks
        self.id = b""  # none as long as it does not yet know all of the tree
        self.seq = 0
        self.quiet_at = 0.0  # when something last happened
        self._floor = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise Lost(f"inotify cannot be used ({os.strerror(ctypes.get_errno())})")
        self._marks = _marks() if most_marks > 0 else None  # None: a file's own watch is inotify's, too
        self._dirs: dict[int, bytes] = {}  # by watch
        self._watches: dict[bytes, int] = {}  # of directories, by path
        self._files: dict[int, bytes] = {}  # by watch; of several names of one file any
        self._names: dict[int, set[bytes]] = {}  # all of them, where there are several
        self._dirty: dict[bytes, tuple[int, bool]] = {}  # number of the last change; whether all below counts as well
        self._opened: dict[bytes, None] = {}  # may be open for writing; to be tested
        self._written: set[bytes] = set()  # are, or it cannot be told: looked at every time
        self._unheard: set[bytes] = set()  # have no watch of their own
        self._closed: set[bytes] = set()  # directories that could not be looked into
        self._deaf: set[bytes] = set()  # directories that are not followed, nor anything below: no watches are left
        self._stages: set[bytes] = set()  # of a restore: what is there is moved elsewhere soon, so it is not followed
        self._changed: dict[bytes, None] = {}  # directories that perhaps can't be entered any longer, or again
        self._inside: dict[bytes, set[int]] = {}  # watches of files, by directory
        self._testing: frozenset[bytes] = frozenset()
        self._new: dict[bytes, None] = {}  # names that need a watch
        self._unlisted: list[bytes] = [b""]  # directories to watch and to list

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self._marks is not None:
            self._marks.close()

    @property
    def fds(self) -> tuple[int, ...]:
        """Can be read when something happened."""
        return (self.fd,) if self._marks is None else (self.fd, self._marks.fd)

    @property
    def watches(self) -> int:
        return len(self._dirs) + (len(self._files) if self._marks is None else 0)

    @property
    def marks(self) -> int:
        return 0 if self._marks is None else len(self._files)

    @property
    def is_partial(self) -> bool:
        """Some of it is looked at every time."""
        return bool(self._deaf)

    @property
    def is_behind(self) -> bool:
        """It does not know all of the tree."""
        return bool(self._unlisted or self._new)

    @property
    def is_pressed(self) -> bool:
        """Somebody opened so many files, perhaps all to read them, that telling of them costs as much as a scan."""
        return len(self._opened) > MANY_OPENED

    @property
    def has_work(self) -> bool:
        return self.is_behind or bool(self._opened)

    def work(self, until: float) -> None:
        """Do some of what there is to do, until about that time (of the monotonic clock)."""
        self.drain()
        root = self._open_root()
        try:
            while self.has_work and time.monotonic() < until:
                # of a large tree not all at once: what is to be tested is kept
                if self.is_behind and len(self._opened) < _MANY:
                    self._settle(root, until, at_once=_MANY)
                else:
                    self._test(root, list(islice(self._opened, _BATCH)))
        finally:
            os.close(root)
        if not self.id and not self.has_work:
            self.drain()
            self.id = os.urandom(16)

    def tell(self, id: bytes, since: int, until: float) -> tuple[bool, dict[bytes, int]]:
        """What may have changed since that number: (whether that is all, {path: ALONE, WHOLE or DEAF}).

        The present number is `seq`. Whoever asks must not have looked at the tree yet.
        """
        self.drain()
        if self._unlisted or self._new:
            root = self._open_root()
            try:
                self._settle(root, until)
            finally:
                os.close(root)
        if id != self.id or since < self._floor or self._unlisted or self._new:
            return False, {}
        for path in [path for path, (seq, _) in self._dirty.items() if seq <= since]:
            del self._dirty[path]  # whoever asks has seen it, and there is one only
        self._floor = since
        told = dict.fromkeys((*self._opened, *self._written, *self._unheard), ALONE)
        told.update((path, WHOLE if is_whole else ALONE) for path, (_, is_whole) in self._dirty.items())
        told.update(dict.fromkeys(self._deaf, DEAF))
        told.update(dict.fromkeys(self._stages, WHOLE))
        return len(told) <= MOST_TOLD, told

    # -- what happened

    def drain(self) -> None:
        """Take all that is queued. What a finished system call did is in the queue already."""
        if self._marks is not None:
            try:
                events = self._marks.take()
            except OverflowError as e:
                raise Lost("more changed at once than the system could tell") from e
            for watch, is_gone in events:
                self._of_file(watch, IGNORED if is_gone else ATTRIB)
        while True:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            at, end = 0, len(data)
            while at < end:
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += 16
                self._one(watch, mask, data[at : at + length].rstrip(b"\0") if length else b"")
                at += length
            self.quiet_at = time.monotonic()
            if len(self._dirty) + len(self._opened) > _MOST_KNOWN:
                raise Lost("too much changed to keep track of")
        if self._changed:
            self._look_into_changed()

    def _one(self, watch: int, mask: int, name: bytes) -> None:
        if mask & OVERFLOW:
            raise Lost("more changed at once than the system could tell")
        above = self._dirs.get(watch)
        if above is None:
            self._of_file(watch, mask)
            return
        if mask & (IGNORED | UNMOUNT | DELETE_SELF | MOVE_SELF):
            if not above or mask & UNMOUNT:
                raise Lost("the folder itself went")
            if mask & IGNORED:
                del self._dirs[watch]
                if self._watches.get(above) == watch:
                    del self._watches[above]
            return  # the directory above tells the rest
        path = above + b"/" + name if above and name else name or above
        if mask & OPEN:
            if name and not mask & IS_DIR and path not in self._testing:
                self._opened[path] = None
            return
        if mask & IS_DIR:
            self._of_dir(path, mask)
            return
        self._touch(path)
        if not name:
            return
        if mask & (CREATE | MOVED_TO) or path in self._unheard:
            self._new[path] = None
        elif mask & CLOSE_WRITE and path in self._written:
            self._opened[path] = None  # perhaps by the last who had it

    def _of_dir(self, path: bytes, mask: int) -> None:
        if path.startswith(tree.STAGES) and b"/" not in path:
            if mask & (CREATE | MOVED_TO):
                self._stages.add(path)
            elif mask & (DELETE | MOVED_FROM):
                self._stages.discard(path)
            self._touch(path, is_whole=True)
            return
        if not mask & (CREATE | MOVED_FROM | MOVED_TO | DELETE) and path in self._watches:
            self._touch(path)
            self._changed[path] = None
            return
        self._touch(path, is_whole=True)
        if mask & MOVED_FROM or (mask & (CREATE | MOVED_TO) and (path in self._watches or path in self._deaf)):
            self._forget(path)
        # of two that change places, it may be the last word of both names that something went from there
        if mask & (CREATE | MOVED_FROM | MOVED_TO) or (mask & ATTRIB and path not in self._watches):
            self._unlisted.append(path)

    def _look_into_changed(self) -> None:
        """Directories whose mode, owner or times changed: the first two may change what can be seen below them.

        Whoever looked while one was closed has a gap there, and looks into it every time until it is open again.
        """
        root = self._open_root()
        try:
            while self._changed:
                path, _ = self._changed.popitem()
                if path in self._closed or not _can_enter(root, path):
                    self._touch(path, is_whole=True)
                    self._closed.add(path)
                    below = path + b"/" if path else b""
                    self._unlisted += [other for other in self._closed if other == path or other.startswith(below)]
        finally:
            os.close(root)

    def _of_file(self, watch: int, mask: int) -> None:
        """An event of a file's own watch: above all, that it got another name or lost one."""
        if mask & IGNORED:
            path = self._files.pop(watch, b"")
            for name in self._names.pop(watch, {path}):
                self._inside.get(name.rpartition(b"/")[0], set()).discard(watch)
            return
        known = self._files.get(watch)
        for path in self._names.get(watch, () if known is None else (known,)):
            self._touch(path)
            # who opened it by a name elsewhere was not heard, and that name may be gone now
            self._opened[path] = None

    def _touch(self, path: bytes, *, is_whole: bool = False) -> None:
        self.seq += 1
        self._dirty[path] = self.seq, is_whole or self._dirty.get(path, (0, False))[1]

    def _forget(self, top: bytes) -> None:
        """A directory went elsewhere, perhaps out of the tree, or another one came in its place."""
        below = top + b"/"
        for path in [path for path in self._watches if path == top or path.startswith(below)]:
            self._unwatch(self._watches.pop(path), path)
            for one in self._inside.pop(path, ()):
                self._leave(one, below)
        for kept in (self._opened, self._new):
            for path in [path for path in kept if path.startswith(below)]:
                del kept[path]
        self._deaf.discard(top)
        for paths in (self._written, self._unheard, self._closed, self._deaf):
            paths.difference_update([path for path in paths if path.startswith(below)])
        self._unlisted = [path for path in self._unlisted if path != top and not path.startswith(below)]

    def _unwatch(self, watch: int, path: bytes) -> None:
        """That is not the watch of this path any more; whoever else has it keeps it."""
        if self._dirs.get(watch) == path:
            del self._dirs[watch]
            self._libc.inotify_rm_watch(self.fd, watch)  # fails if it is gone already, which is what is wanted

    def _leave(self, watch: int, below: bytes) -> None:
        """Names below are no more of this file; its watch is kept if it has others in the tree."""
        others = {path for path in self._names.pop(watch, set()) if not path.startswith(below)}
        if others:
            self._files[watch] = next(iter(others))
            self._names[watch] = others
        else:
            self._files.pop(watch, None)
            if self._marks is None:
                self._libc.inotify_rm_watch(self.fd, watch)
            # a mark could be taken back only by a name that is not known; its events will be of nobody

    # -- watches

    def _settle(self, root: int, until: float, *, at_once: int = 1 << 62) -> None:
        """Give everything that is new its watch. What it is then must be seen by whoever looks next."""
        while self._new:
            path, _ = self._new.popitem()
            self._watch_name(root, path)
            self._touch(path)
            if time.monotonic() > until:
                return
        while self._unlisted:
            path = self._unlisted.pop()
            self._list(root, path)
            if self.id:
                self._touch(path, is_whole=True)
            if time.monotonic() > until or len(self._opened) >= at_once:
                return

    def _list(self, root: int, path: bytes) -> None:
        self._closed.discard(path)
        self._deaf.discard(path)
        try:
            fd = _beneath(root, path)
        except OSError as e:
            if e.errno in _CHANGED_PLACE:
                return  # of which there is an event
            if e.errno in (errno.EACCES, errno.EPERM):
                self._closed.add(path)  # to a scan as well
                return
            raise Lost(f"a directory cannot be opened ({e.strerror})") from e
        try:
            if os.fstat(fd).st_dev != self.identity[0]:
                return
            if self._is_full():
                self._leave_out(path)
                return
            watch = self._add(b"/proc/self/fd/%d" % fd, _OF_A_DIR)
            if watch < 0:
                self._closed.add(path)
                return
            self._assign(watch, path)
            # after the watch, so that nothing can slip in between
            with os.scandir(fd) as names:
                for entry in names:
                    name = os.fsencode(entry.name)
                    child = path + b"/" + name if path else name
                    if entry.is_dir(follow_symlinks=False):
                        if path or not name.startswith(tree.STAGES):
                            self._unlisted.append(child)
                        else:
                            self._stages.add(child)
                    elif self._is_full():
                        self._leave_out(path)
                        return
                    else:
                        self._watch_file(fd, name, child, is_regular=entry.is_file(follow_symlinks=False))
            if not os.access(b".", os.R_OK | os.X_OK, dir_fd=fd, effective_ids=True):
                self._closed.add(path)
        except OSError as e:
            raise Lost(f"a directory cannot be listed ({e.strerror})") from e
        finally:
            os.close(fd)

    def _assign(self, watch: int, path: bytes) -> None:
        """That is the watch of this directory, and of no other; this directory has no other watch.

        A directory that was moved keeps its watch. If it is found in its new place before the event is read by which it
        left the old one, that event must not end the watch.
        """
        old, other = self._dirs.get(watch, path), self._watches.get(path, watch)
        if old != path and self._watches.get(old) == watch:
            del self._watches[old]
            for one in self._inside.pop(old, ()):
                self._leave(one, old + b"/")
        if other != watch:
            self._unwatch(other, path)
        self._dirs[watch], self._watches[path] = path, watch

    def _is_full(self) -> bool:
        share = 1.0 if self.id else _AT_FIRST
        return self.watches >= self.most * share or self.marks >= self.most_marks * share > 0

    def _leave_out(self, path: bytes) -> None:
        """There are no watches for that directory and what is below it."""
        if not path:
            raise Lost("it has more names than the system allows watches", is_final=True)
        if self.id:
            raise Lost("it got more names than could be followed")
        below = path + b"/"
        self._unlisted = [other for other in self._unlisted if not other.startswith(below)]
        self._deaf.add(path)

    def _watch_name(self, root: int, path: bytes) -> None:
        above, _, name = path.rpartition(b"/")
        try:
            fd = _beneath(root, above)
        except OSError as e:
            if e.errno in (*_CHANGED_PLACE, errno.EACCES, errno.EPERM):
                return
            raise Lost(f"a directory cannot be opened ({e.strerror})") from e
        try:
            self._watch_file(fd, name, path, is_regular=True)
        finally:
            os.close(fd)

    def _watch_file(self, dir_fd: int, name: bytes, path: bytes, *, is_regular: bool) -> None:
        watch = self._add_file(dir_fd, name)
        if watch == -errno.ENOENT:
            return
        if watch < 0 or (self._marks is None and watch in self._dirs):
            self._unheard.add(path)
            return
        self._unheard.discard(path)
        self._inside.setdefault(path.rpartition(b"/")[0], set()).add(watch)
        known = self._files.setdefault(watch, path)
        if known != path:
            self._names.setdefault(watch, {known}).add(path)
            self._other_name(dir_fd, name, watch, path)
        if is_regular:
            self._opened[path] = None

    def _other_name(self, dir_fd: int, name: bytes, watch: int, path: bytes) -> None:
        """A file has a watch already: by another name that it still has, or had."""
        try:
            if os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_nlink > 1:
                return
        except OSError:
            return
        for old in self._names.pop(watch) - {path}:
            above = old.rpartition(b"/")[0]
            if above != path.rpartition(b"/")[0]:
                self._inside.get(above, set()).discard(watch)
        self._files[watch] = path

    def _add(self, path: bytes, mask: int) -> int:
        """A watch; minus an errno if there is none for a reason that may be."""
        watch: int = self._libc.inotify_add_watch(self.fd, path, mask)
        if watch >= 0:
            if self.watches > self.most:
                raise Lost("it got more names than could be followed")
            return watch
        code = ctypes.get_errno()
        if code in (errno.ENOENT, errno.EACCES):
            return -code
        raise Lost(f"the system allows no more watches ({os.strerror(code)})", is_final=code == errno.ENOSPC)

    def _add_file(self, dir_fd: int, name: bytes) -> int:
        """A file's own watch; minus an errno if there is none for a reason that may be."""
        if self._marks is not None:
            try:
                watch = self._marks.add(dir_fd, name)
            except OSError as e:
                code = e.errno or 0
                if code == errno.EACCES or code in _CHANGED_PLACE:
                    return -errno.EACCES if code == errno.EACCES else -errno.ENOENT
                if self._files:
                    raise Lost(f"the system allows no more marks ({e.strerror})", is_final=code == errno.ENOSPC) from e
                self._marks.close()  # this file system has none
                self._marks = None
            else:
                if self.marks > self.most_marks:
                    raise Lost("it got more names than could be followed")
                return watch
        return self._add(b"/proc/self/fd/%d/%s" % (dir_fd, name), ATTRIB | _NO_FOLLOW)

    # -- who writes

    def _test(self, root: int, paths: Iterable[bytes]) -> None:
        """Whether anybody has these open for writing.

            open all ──▶ drain ──▶ take and drop a lease on each ──▶ close

        Our own opening is an event too; those of it are read before the leases. So whoever opens one later makes an
        event that is read later, and whoever did before is found by the lease.
        """
        tested = list(paths)
        self._testing = frozenset(tested)
        for path in tested:
            self._opened.pop(path, None)
        try:
            found = native.writers(root, tested, self.drain)
        finally:
            self._testing = frozenset()
        for path, is_written in zip(tested, found, strict=True):
            if is_written:
                self._written.add(path)
            else:
                self._written.discard(path)

    def _open_root(self) -> int:
        try:
            fd = os.open(self.root, _NAME | os.O_DIRECTORY)
        except OSError as e:
            raise Lost("the folder itself went") from e
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self.identity:
            os.close(fd)
            raise Lost("the folder itself went")
        return fd


def _marks() -> Marks | None:
    try:
        return Marks()
    except OSError:
        return None  # an older system


def _beneath(root: int, path: bytes) -> int:
    return native.open_beneath(root, path, _DIRECTORY) if path else os.open(b".", _DIRECTORY, dir_fd=root)


def _can_enter(root: int, path: bytes) -> bool:
    """Whether it can be listed, and what is in it be looked at."""
    try:
        fd = _beneath(root, path)
    except OSError:
        return False
    try:
        return os.access(b".", os.R_OK | os.X_OK, dir_fd=fd, effective_ids=True)
    finally:
        os.close(fd)
