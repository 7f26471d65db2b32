"""Find out what a file system can keep, by doing it in a directory of our own that is removed again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

_DOUBTFUL = frozenset(
    [
        "exfat",
        "vfat",
        "msdos",
        "ntfs",
        "ntfs3",
        "hfs",
        "hfsplus",
        "cifs",
        "smb3",
        "nfs",
        "nfs4",
        "9p",
        "virtiofs",
        "iso9660",
        "udf",
    ]
)


def probe(root_fd: int) -> Iterator[str]:
    """A sentence for everything that this file system does not do; nothing is written on the common ones."""
    if not _is_doubtful(root_fd):
        return
    before = os.fstat(root_fd).st_mtime_ns
    name = b".reprieve-probe-" + os.urandom(4).hex().encode()
    try:
        os.mkdir(name, 0o700, dir_fd=root_fd)
    except OSError as e:
        yield f"nothing can be created here ({e.strerror}): a rollback will not be possible"
        return
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    try:
        yield from _try_all(fd)
    finally:
        for left in os.listdir(fd):
            os.unlink(left, dir_fd=fd)
        os.close(fd)
        os.rmdir(name, dir_fd=root_fd)
        os.utime(root_fd, ns=(before, before))


def _is_doubtful(root_fd: int) -> bool:
    """Whether the file system is of a kind that may not keep everything; the common ones need no writing to know."""
    dev = os.fstat(root_fd).st_dev
    number = f"{os.major(dev)}:{os.minor(dev)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            kinds = [line.split(" - ", 1)[1].split(" ", 1)[0] for line in lines if line.split(" ", 3)[2] == number]
    except OSError:
        return True  # not Linux: nothing is known, so look
    return any(kind in _DOUBTFUL or kind.startswith("fuse") for kind in kinds)


def _try_all(fd: int) -> Iterator[str]:
    os.close(os.open(b"file", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd))
    checks: tuple[tuple[str, Callable[[int], bool]], ...] = (
        ("symlinks cannot be kept", _symlink),
        ("hard links cannot be kept as links", _hard_link),
        ("names that are not UTF-8 cannot be kept", _odd_name),
        ("upper and lower case are not told apart: `a` and `A` cannot both be kept", _case),
        ("permission bits are not kept", _mode),
        ("times are kept to the second only", _nanoseconds),
    )
    for text, holds in checks:
        try:
            is_fine = holds(fd)
        except OSError:
            is_fine = False
        if not is_fine:
            yield text


def _symlink(fd: int) -> bool:
    os.symlink(b"file", b"link", dir_fd=fd)
    return True


def _hard_link(fd: int) -> bool:
    os.link(b"file", b"file2", src_dir_fd=fd, dst_dir_fd=fd)
    return True


def _odd_name(fd: int) -> bool:
    os.close(os.open(b"\xff", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=fd))
    return b"\xff" in [os.fsencode(n) for n in os.listdir(fd)]


def _case(fd: int) -> bool:
    try:
        os.stat(b"FILE", dir_fd=fd)
    except FileNotFoundError:
        return True
    return False


def _mode(fd: int) -> bool:
    file = os.open(b"file", os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fchmod(file, 0o640)
        return os.fstat(file).st_mode & 0o777 == 0o640
    finally:
        os.close(file)


def _nanoseconds(fd: int) -> bool:
    os.utime(b"file", ns=(1_000_000_007, 1_000_000_007), dir_fd=fd)
    return os.stat(b"file", dir_fd=fd).st_mtime_ns == 1_000_000_007
