"""Open, rename and stat beneath a root in Python: twins of open_beneath, rename2, stat_many, syncfs, writers, birth."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable

from reprieve.files._twin_tree import is_clean, parent

DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _error(code: int, path: bytes) -> OSError:
    return OSError(code, os.strerror(code), path)


def open_beneath(root_fd: int, path: bytes, flags: int, mode: int = 0) -> int:
    if not isinstance(path, bytes):
        raise TypeError("path must be bytes")
    if not is_clean(path):
        raise _error(errno.EINVAL, path)
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    dir, parts = root_fd, path.split(b"/") if path else [b"."]
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        try:
            fd = os.open(part, flags if is_last else _STEP, mode & 0o7777, dir_fd=dir)
        except OSError as e:
            code = e.errno or 0
            if code == errno.ENOTDIR and _is_link(dir, part):
                code = errno.ELOOP
            raise _error(code, path) from None
        finally:
            if dir != root_fd:
                os.close(dir)
        dir = fd
    return dir


def _is_link(dir: int, name: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir, follow_symlinks=False).st_mode)
    except OSError:
        return False


class Parents:
    """The directory of the last path asked for, kept open: paths come sorted, so neighbours share it."""

    def __init__(self, root_fd: int) -> None:
        self.root_fd, self.fd, self.path = root_fd, -1, b""

    def open(self, path: bytes) -> tuple[int, bytes]:
        """Descriptor of the path's directory, and its last name."""
        dir = parent(path)
        if self.fd < 0 or dir != self.path:
            self.close()
            self.fd = open_beneath(self.root_fd, dir, _STEP)
            self.path = dir
        return self.fd, path.rpartition(b"/")[2]

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def stat_many(root_fd: int, paths: Iterable[bytes], /) -> list[tuple[int, ...] | None]:
    found: list[tuple[int, ...] | None] = []
    parents = Parents(root_fd)
    try:
        for path in paths:
            if not isinstance(path, bytes):
                raise TypeError("paths must be bytes")
            if not is_clean(path):
                raise _error(errno.EINVAL, path)
            try:
                if path:
                    dir, name = parents.open(path)
                    st = os.stat(name, dir_fd=dir, follow_symlinks=False)
                else:
                    st = os.fstat(root_fd)
            except OSError as e:
                if e.errno not in _MISSING:
                    raise _error(e.errno or 0, path) from None
                found.append(None)
                continue
            times = (*divmod(st.st_mtime_ns, 1_000_000_000), *divmod(st.st_ctime_ns, 1_000_000_000))
            found.append(
                (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_ino, st.st_dev, st.st_rdev, st.st_size, *times)
            )
    finally:
        parents.close()
    return found


def is_name(name: bytes) -> bool:
    """One component that names something."""
    return bool(name) and b"/" not in name and is_clean(name)


def rename2(old_dir_fd: int, old: bytes, new_dir_fd: int, new: bytes, flags: int, /) -> None:
    if not isinstance(old, bytes) or not isinstance(new, bytes):
        raise TypeError("names must be bytes")
    if flags not in (0, 1, 2) or not is_name(old) or not is_name(new):
        raise _error(errno.EINVAL, old)
    if flags == 0:
        os.rename(old, new, src_dir_fd=old_dir_fd, dst_dir_fd=new_dir_fd)
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        call, flags = getattr(libc, "renameatx_np", None), 4 if flags == 1 else 2
    else:
        call = getattr(libc, "renameat2", None)
    code = errno.EINVAL
    if call is not None:
        if call(old_dir_fd, old, new_dir_fd, new, flags) == 0:
            return
        code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.ENOTSUP):
        code = errno.EINVAL
    raise OSError(code, os.strerror(code), old, None, new)


def syncfs(fd: int, /) -> None:
    os.fstat(fd)  # a closed descriptor is an error, whatever the system offers
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "syncfs", None)
    if call is None:
        os.sync()
    elif call(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def writers(root_fd: int, paths: Iterable[bytes], between: Callable[[], object], /) -> list[bool]:
    held: list[int] = []  # -1: nothing is there that could be written, -2: it cannot be told
    paths = tuple(paths)
    for path in paths:
        if not isinstance(path, bytes):
            raise TypeError("paths must be bytes")
        if not path or not is_clean(path):
            raise _error(errno.EINVAL, path)
    try:
        held += (_open_regular(root_fd, path) for path in paths)
        between()
        return [fd == -2 or (fd >= 0 and writer_of(fd) is not False) for fd in held]
    finally:
        for fd in held:
            if fd >= 0:
                os.close(fd)


def _open_regular(root_fd: int, path: bytes) -> int:
    """A descriptor to read. A pipe or a device is never opened."""
    if not hasattr(os, "O_PATH"):
        return -2
    try:
        at = open_beneath(root_fd, path, os.O_PATH)
    except OSError as e:
        return -1 if e.errno in _MISSING else -2
    try:
        if not stat.S_ISREG(os.fstat(at).st_mode):
            return -1
        return os.open(f"/proc/self/fd/{at}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -2
    finally:
        os.close(at)


def writer_of(fd: int) -> bool | None:
    """Whether somebody has it open or mapped for writing; None if it cannot be told."""
    import fcntl
    from signal import SIGURG

    try:
        # whoever opens it in this instant waits, and we are told by a signal: one that does nothing by default
        fcntl.fcntl(fd, fcntl.F_SETSIG, SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except AttributeError:
        return None
    except OSError as e:
        return True if e.errno == errno.EAGAIN else None
    return False


def birth(fd: int, /) -> int:
    known = getattr(os.fstat(fd), "st_birthtime_ns", None)
    if known is not None:
        return int(known)
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    buffer = ctypes.create_string_buffer(256)
    has_birth = 0x800  # STATX_BTIME
    if call is None or call(fd, b"", 0x1000, has_birth, buffer):  # 0x1000: AT_EMPTY_PATH
        return 0
    if not struct.unpack_from("<I", buffer, 0)[0] & has_birth:
        return 0
    seconds, ns = struct.unpack_from("<qI", buffer, 80)
    return int(seconds * 1_000_000_000 + ns)
