"""A file of ours in memory, and whether it was written since the system started. Loaded before the rest of a hook."""

from __future__ import annotations

import mmap
import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOOT = 16  # bytes


def mapped(path: str) -> memoryview:
    """A whole file, to be read from the beginning to the end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not os.fstat(fd).st_size:
            return memoryview(b"")
        found = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    if hasattr(found, "madvise"):
        found.madvise(mmap.MADV_WILLNEED)
    return memoryview(found)


def this_boot() -> bytes:
    """What no other start of the system has; zeros where that can't be told."""
    try:
        fd = os.open(_BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return bytes(16)  # not Linux: checked every time
    try:
        return bytes.fromhex(os.read(fd, 64).strip().replace(b"-", b"").decode())
    finally:
        os.close(fd)
