"""A reserve on the store's disk, so that a full disk does not lock a person out of taking things back.

`ballast` is 2 MiB of nothing. When the disk is full most of it is given up, which is enough to roll back small things;
the rest is for what frees space, whose database needs a journal for that. `gc` makes it anew once there is room.
"""

from __future__ import annotations

import os

from reprieve.store.home import undo_umask

_NAME = "ballast"
_SIZE = 2 << 20
_LAST = 512 << 10  # of it, for prune, gc and forget
_ROOM = 64 << 20  # with less than this free, the reserve would be what fills the disk; with less than
_LITTLE_ROOM = 6 << 20  # that, also its last part
_CACHES = ("index", "tickets")  # docs/format.md: made again by whoever misses them


def room(home: str) -> int:
    """Bytes that are free on the store's disk."""
    disk = os.statvfs(home)
    return disk.f_bavail * disk.f_frsize


def make_ballast(home: str) -> None:
    """Reserve the bytes, if there is room. Best effort: a store without a reserve is as good until the disk is full."""
    path = os.path.join(home, _NAME)
    try:
        left = room(home)
        if left < _LITTLE_ROOM:
            return
        wanted = _SIZE if left >= _ROOM else _LAST
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        undo_umask(fd)
        size = os.fstat(fd).st_size
        if size >= wanted:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, wanted)
        else:
            os.pwrite(fd, bytes(wanted - size), size)
    except OSError:
        os.unlink(path)
    finally:
        os.close(fd)


def release_ballast(home: str, *, wholly: bool = False) -> bool:
    """Give the reserve up, but for what `prune`, `gc` and `forget` need (wholly: that too); False if there was none."""
    path = os.path.join(home, _NAME)
    try:
        if wholly:
            os.unlink(path)
            return True
        if os.lstat(path).st_size <= _LAST:
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.ftruncate(fd, _LAST)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def give_way(home: str) -> bool:
    """For what frees space on a full disk: give up the reserve, then the caches. False if there was nothing to give up.

    The caller is alone in the store.
    """
    if release_ballast(home, wholly=True):
        return True
    given = False
    for folder in _CACHES:
        try:
            for name in os.listdir(os.path.join(home, folder)):
                os.unlink(os.path.join(home, folder, name))
                given = True
        except OSError:
            continue
    return given
