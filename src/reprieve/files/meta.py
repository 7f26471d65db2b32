"""Set owner, mode, xattrs and times of one thing that is already open, or reached without following a link."""

from __future__ import annotations

import errno
import os
import stat

from reprieve.files import native
from reprieve.model.entry import DIR, SYMLINK, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.files import tree
    from reprieve.files.beneath import Beneath

_AT_A_TIME = 4096  # paths; bounds memory
_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


def set_meta(dir_fd: int, name: bytes, entry: Entry, *, lost: list[str], times: bool = True) -> None:
    """Bring what is at name (of the entry's kind) to the entry's owner, mode, xattrs and times.

    What the platform or our rights do not allow is appended to `lost`; anything else raises OSError.
    """
    if entry.kind == SYMLINK:
        _own(lambda: os.chown(name, entry.uid, entry.gid, dir_fd=dir_fd, follow_symlinks=False), lost)
        for key, value in entry.xattrs:
            try:
                os.setxattr(b"/proc/self/fd/%d/%s" % (dir_fd, name), key, value, follow_symlinks=False)
            except OSError as e:
                _only_if_forbidden(e)
                lost.append(f"extended attribute {os.fsdecode(key)} could not be set: {e.strerror}")
        if times:
            os.utime(name, ns=(_mtime(entry), _mtime(entry)), dir_fd=dir_fd, follow_symlinks=False)
        return
    fd = os.open(name, _PATH_ONLY, dir_fd=dir_fd)
    try:
        set_open(fd, entry, lost=lost, times=times)
    finally:
        os.close(fd)


def set_open(fd: int, entry: Entry, *, lost: list[str], times: bool = True) -> None:
    """The same for an open descriptor (also one opened with O_PATH)."""
    at = f"/proc/self/fd/{fd}"  # works on O_PATH descriptors too, and never follows a link in the tree
    st = os.fstat(fd)
    if (st.st_uid, st.st_gid) != (entry.uid, entry.gid):
        _own(lambda: os.chown(at, entry.uid, entry.gid), lost)
    _set_xattrs(at, entry, lost)
    if stat.S_IMODE(os.fstat(fd).st_mode) != entry.mode:
        os.chmod(at, entry.mode)
        if stat.S_IMODE(os.fstat(fd).st_mode) != entry.mode:
            lost.append(f"mode {entry.mode:04o} was not accepted by the system")
    if times:
        set_times(fd, entry)


def set_times(fd: int, entry: Entry) -> None:
    """Only the modification time."""
    if os.fstat(fd).st_mtime_ns != _mtime(entry):
        os.utime(f"/proc/self/fd/{fd}", ns=(_mtime(entry), _mtime(entry)))


def verify_times(beneath: Beneath, moves: tree.Delta, done: set[bytes]) -> bool:
    """Some file systems (FUSE) set a time of their own when a file is closed or moved: set ours again; True if so."""
    is_corrected = False
    for start in range(0, len(moves), _AT_A_TIME):
        some = moves[start : start + _AT_A_TIME]
        wanted = [(p, after) for p, _, after in some if after is not None and after.kind != DIR and p in done]
        stats = native.stat_many(beneath.root_fd, [path for path, _ in wanted])
        for (path, after), st in zip(wanted, stats, strict=True):
            if st is not None and (st[8], st[9]) != (after.mtime_s, after.mtime_ns):
                fd, name = beneath.at(path)
                os.utime(name, ns=(_mtime(after), _mtime(after)), dir_fd=fd, follow_symlinks=False)
                is_corrected = True
    return is_corrected


def loosen(fd: int) -> bool:
    """Give the owner full rights on a directory so that names in it can change; False if that isn't needed."""
    st = os.fstat(fd)
    mode = stat.S_IMODE(st.st_mode)
    # root is not exempt: in a container it may lack the capability that lets it pass modes by
    if mode & 0o700 == 0o700 or st.st_uid != os.geteuid():
        return False
    os.chmod(f"/proc/self/fd/{fd}", mode | 0o700)
    return True


def _own(chown: object, lost: list[str]) -> None:
    try:
        chown()  # type: ignore[operator]
    except PermissionError:
        lost.append("owner could not be set (not permitted)")


def _set_xattrs(at: str, entry: Entry, lost: list[str]) -> None:
    try:
        present = {os.fsencode(n) for n in os.listxattr(at)}
    except OSError as e:
        if e.errno == errno.ENOTSUP and not entry.xattrs:
            return
        _only_if_forbidden(e)
        lost.append(f"extended attributes could not be read: {e.strerror}")
        return
    wanted = dict(entry.xattrs)
    for name in present - wanted.keys():
        try:
            os.removexattr(at, name)
        except OSError as e:
            _only_if_forbidden(e)
            lost.append(f"extended attribute {os.fsdecode(name)} could not be removed: {e.strerror}")
    for name, value in wanted.items():
        try:
            if name not in present or os.getxattr(at, name) != value:
                os.setxattr(at, name, value)
        except OSError as e:
            _only_if_forbidden(e)
            lost.append(f"extended attribute {os.fsdecode(name)} could not be set: {e.strerror}")


def _only_if_forbidden(error: OSError) -> None:
    """What rights or the file system do not allow can be named and left; a full or failing disk must stop the move."""
    if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL):
        raise error


def _mtime(entry: Entry) -> int:
    return entry.mtime_s * 1_000_000_000 + entry.mtime_ns


def adds_xattrs(before: Entry | None, after: Entry | None) -> bool:
    """Whether a file gets attributes that it does not have; not asked of directories."""
    return (
        before is not None and after is not None and after.kind != DIR and not set(after.xattrs) <= set(before.xattrs)
    )


def is_dir(entry: Entry | None) -> bool:
    """Whether there is a directory."""
    return entry is not None and entry.kind == DIR


def file_type(kind: bytes) -> int:
    """The type bits of a mode for an entry of this kind."""
    return {
        b"f": stat.S_IFREG,
        b"d": stat.S_IFDIR,
        b"l": stat.S_IFLNK,
        b"p": stat.S_IFIFO,
        b"s": stat.S_IFSOCK,
        b"c": stat.S_IFCHR,
        b"b": stat.S_IFBLK,
    }[kind]
