"""A reserve on the store's disk, so that a full disk does not lock a person out of taking things back.

`ballast` is 2 MiB of nothing. When the disk is full it is given up, which is enough to roll back small things or to
prune; `gc` makes it anew once there is room.
"""

from __future__ import annotations

import os

from reprieve.store.home import undo_umask

_NAME = "ballast"
_SIZE = 2 << 20
_ROOM = 64 << 20  # with less than this free, the reserve would be what fills the disk


def make_ballast(home: str) -> None:
    """Reserve the bytes, if there is room. Best effort: a store without a reserve is as good until the disk is full."""
    path = os.path.join(home, _NAME)
    try:
        room = os.statvfs(home)
        if os.path.lexists(path) or room.f_bavail * room.f_frsize < _ROOM:
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        undo_umask(fd)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, _SIZE)
        else:
            os.write(fd, bytes(_SIZE))
    except OSError:
        os.unlink(path)
    finally:
        os.close(fd)


def release_ballast(home: str) -> bool:
    """Give the reserve up; False if there was none."""
    try:
        os.unlink(os.path.join(home, _NAME))
    except OSError:
        return False
    return True
