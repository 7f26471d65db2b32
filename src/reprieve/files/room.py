"""Directories in other parts of the disk, for creating many files where that is slow in their own place.

ext4 without a journal does not give a deleted file's inode away for a minute and looks at each of them whenever a file
is created nearby: bringing back 10,000 files that were just deleted took 7 s, of which 6.5 went into that search. What
becomes of these rooms is for `native.write_files` and `native.make_dirs` to decide: used only where creating is slow.
"""

from __future__ import annotations

import fcntl
import os
import struct

from reprieve.files.stage import ROOMS

_GETFLAGS, _SETFLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_TOPDIR = 0x20000  # chattr +T: each directory in this one is put where there are few
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_rooms(stage_fd: int, count: int) -> list[int]:
    """Make so many in the stage and open them; none on file systems without that trait. They go with the stage."""
    try:
        (flags,) = struct.unpack_from("<I", fcntl.ioctl(stage_fd, _GETFLAGS, bytes(8)))
        fcntl.ioctl(stage_fd, _SETFLAGS, struct.pack("<Q", flags | _TOPDIR))
    except OSError:
        return []  # not ext4
    rooms: list[int] = []
    for number in range(count):
        # ext4 chooses the part by the name: under one that was used before, files were deleted not long ago
        name = f"{ROOMS}{number}.{os.urandom(4).hex()}"
        try:
            os.mkdir(name, 0o700, dir_fd=stage_fd)
            rooms.append(os.open(name, _OPEN, dir_fd=stage_fd))
        except OSError:
            break  # short of descriptors or space: whoever needs them for more than speed will say so
    return rooms
