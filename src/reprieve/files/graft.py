"""Directories that come back as a whole: built in the staging directory, moved into the tree in one piece.

One rename brings a directory back with everything in it, and its files are written into directories of their own: a
tree of 10,000 files costs a few renames instead of 10,000.
"""

from __future__ import annotations

import errno
import os

from reprieve.files import native, tree
from reprieve.files.beneath import Beneath
from reprieve.files.meta import loosen, set_meta
from reprieve.model.entry import DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files.stage import Stage
    from reprieve.model.entry import Entry

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def find_grafts(moves: tree.Delta) -> list[int]:
    """For each sorted move the number of the topmost new directory that it comes with, -1 if there is none."""
    found = [-1] * len(moves)
    at = 0
    while at < len(moves):
        path, before, after = moves[at]
        if not path or before is not None or after is None or after.kind != DIR:
            at += 1
            continue
        top, below, folders, is_whole = at, path + b"/", {path}, True
        at += 1
        while at < len(moves) and moves[at][0].startswith(below):
            path, before, after = moves[at]
            is_whole = is_whole and before is None and after is not None and path.rpartition(b"/")[0] in folders
            if after is not None and after.kind == DIR:
                folders.add(path)
            at += 1
        if is_whole:
            found[top:at] = [top] * (at - top)
    return found


def find_others(moves: tree.Delta, grafts: list[int]) -> list[int]:
    """New directories that do not come as a whole: made in the stage too, so that no move depends on free space."""
    return [
        i
        for i, (_, before, after) in enumerate(moves)
        if grafts[i] < 0 and after is not None and after.kind == DIR and (before is None or before.kind != DIR)
    ]


def finish_folders(stage: Stage, wanted: list[tuple[int, Entry]]) -> None:
    """Owner, mode, xattrs and times of directories whose content is complete. Raises OSError."""
    wanted = sorted(wanted, key=lambda item: tree.sort_key(stage.place(item[0])), reverse=True)  # deepest first
    slow = [(i, e) for i, e in wanted if e.xattrs]
    plain = [(i, e) for i, e in wanted if not e.xattrs]
    items = [(stage.place(i), e.mode, *stage.owner(i, e), e.mtime_s, e.mtime_ns) for i, e in plain]
    for (i, e), code in zip(plain, native.finish_dirs(stage.fd, items), strict=True):
        if code in (-1, errno.EPERM, errno.EACCES):
            slow.append((i, e))
        elif code:
            raise OSError(code, os.strerror(code))
    for i, e in slow:
        lost: list[str] = []
        set_meta(*stage.at(i), e, lost=lost)
        if lost:
            stage.lost.setdefault(i, []).extend(lost)


def remove_graft(dir_fd: int, name: bytes) -> None:
    """Remove a directory that was built in the stage, with all that is in it. Raises OSError."""
    beneath = Beneath(dir_fd)
    todo, folders = [name], []
    try:
        while todo:
            path = todo.pop()
            folders.append(path)
            fd, last = beneath.at(path)
            door = os.open(last, _PATH_ONLY, dir_fd=fd)
            try:
                loosen(door)
            finally:
                os.close(door)
            fd = beneath.dir(path)
            with os.scandir(fd) as listing:
                for item in listing:
                    if item.is_dir(follow_symlinks=False):
                        todo.append(path + b"/" + os.fsencode(item.name))
                    else:
                        os.unlink(item.name, dir_fd=fd)
        for path in reversed(folders):
            fd, last = beneath.at(path)
            beneath.forget(path)
            os.rmdir(last, dir_fd=fd)
    finally:
        beneath.close()
