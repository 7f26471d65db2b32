"""A linked git worktree, or a submodule: a folder whose `.git` is a file that names a directory elsewhere.

HEAD and index are in that directory, branches and stash in the repository that it belongs to. Where it lies outside of
the folder no checkpoint holds any of it. It is named, and its state is known, so that a rollback can say whether it
moved.
"""

from __future__ import annotations

import os
import stat

from reprieve.files.native import sha256

_MOST = 1 << 20  # bytes that are read of one file
_END = 64  # of a larger index: its size and its end, where git has its checksum


def linked_outside(root: bytes) -> bytes:
    """The git directory outside of the folder that its `.git` names, b"" if there is none."""
    link = _read(os.path.join(root, b".git"), is_link_followed=False)
    if not link.startswith(b"gitdir: ") or b"\0" in link:
        return b""
    top = os.path.realpath(root)
    at = os.path.realpath(os.path.join(top, link[8:].strip()))
    return at if os.path.isdir(at) and not at.startswith(os.path.join(top, b"")) else b""


def state_of(root: bytes) -> str:
    """What HEAD, its branch, the index and the stash are where they are outside; "" for any other folder."""
    at = linked_outside(root)
    if not at:
        return ""
    from reprieve.files.gitindex import essence

    common = os.path.normpath(os.path.join(at, _read(os.path.join(at, b"commondir")).strip()))
    head = _read(os.path.join(at, b"HEAD"))
    refs = [b"refs/stash", *([head[5:].strip()] if head.startswith(b"ref: ") else [])]
    index = _read(os.path.join(at, b"index")) or _end_of(os.path.join(at, b"index"))
    tables = _read(os.path.join(common, b"reftable", b"tables.list"))  # where refs are no files
    parts = [head, essence(index) or index, tables, *(_commit(common, ref) for ref in refs)]
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hex()


def _commit(common: bytes, ref: bytes) -> bytes:
    found = b"" if b"\0" in ref else _read(os.path.join(common, ref))
    if found:
        return found.strip()
    lines = _read(os.path.join(common, b"packed-refs")).split(b"\n")
    return next((line.partition(b" ")[0] for line in lines if line.endswith(b" " + ref)), b"")


def _end_of(path: bytes) -> bytes:
    """Of a file that is too large to be read: also git's looking at the tree may change that, but nothing is missed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            return b""
        return b"%d " % st.st_size + os.pread(fd, _END, max(0, st.st_size - _END))
    except OSError:
        return b""
    finally:
        os.close(fd)


def _read(path: bytes, *, is_link_followed: bool = True) -> bytes:
    """The bytes of a regular file, b"" if it is none, is too large or can't be read: anybody may have named it."""
    try:
        st = os.stat(path, follow_symlinks=is_link_followed)
        if not stat.S_ISREG(st.st_mode) or st.st_size > _MOST:
            return b""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, _MOST)
    except OSError:
        return b""
    finally:
        os.close(fd)
