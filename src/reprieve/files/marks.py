"""A watch for each file of its own, which tells when its number of links changes: marks of fanotify.

Unlike inotify's watches they have a limit of their own, which editors do not need, and nothing is asked of an ordinary
user but that the file can be read (Linux 5.13). What an event names is not a watch but the file's handle.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_CLOEXEC, _NONBLOCK, _REPORT_FID = 0x1, 0x2, 0x200
_ADD, _DONT_FOLLOW = 0x1, 0x4
_ATTRIB, _DELETE_SELF, OVERFLOW = 0x4, 0x400, 0x4000
_EVENT = struct.Struct("=IBBHQii")  # length, version, -, length of this, what, descriptor, process
_HANDLE_AT = 12  # in what follows it: type, -, length; number of the file system
_HANDLE = struct.Struct("=Ii")
_LARGEST = 128
_READ = 1 << 16
_LIMIT = "/proc/sys/fs/fanotify/max_user_marks"


class Marks:
    """One queue of events. Raises OSError where the system has no such marks for us."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "fanotify_mark") or not hasattr(libc, "name_to_handle_at"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._mark, self._name_to_handle = libc.fanotify_mark, libc.name_to_handle_at
        self._mark.argtypes = (ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p)
        self._handle = ctypes.create_string_buffer(_HANDLE.size + _LARGEST)
        self._mount = ctypes.byref(ctypes.c_int())
        self.fd: int = libc.fanotify_init(_CLOEXEC | _NONBLOCK | _REPORT_FID, 0)
        if self.fd < 0:
            raise _error()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def add(self, dir_fd: int, name: bytes) -> int:
        """Mark a file; the number that its events will have. A second mark on the same file changes nothing."""
        if self._mark(self.fd, _ADD | _DONT_FOLLOW, _ATTRIB | _DELETE_SELF, dir_fd, name):
            raise _error()
        _HANDLE.pack_into(self._handle, 0, _LARGEST, 0)
        # if another file has the name by now, the directory's watch tells of that
        if self._name_to_handle(dir_fd, name, self._handle, self._mount, 0):
            raise _error()
        size, _ = _HANDLE.unpack_from(self._handle)
        return int.from_bytes(self._handle.raw[_HANDLE.size : _HANDLE.size + size], "little")

    def take(self) -> list[tuple[int, bool]]:
        """What is queued: (number, whether the file is gone). Raises OverflowError if some was not kept."""
        found: list[tuple[int, bool]] = []
        while True:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                length, _, _, own, mask, _, _ = _EVENT.unpack_from(data, at)
                if mask & OVERFLOW:
                    raise OverflowError
                handle = at + own + _HANDLE_AT
                size, _ = _HANDLE.unpack_from(data, handle)
                first = handle + _HANDLE.size
                number = int.from_bytes(data[first : first + size], "little")
                found.append((number, bool(mask & _DELETE_SELF)))
                at += length


def allowed() -> int:
    """How many marks the system allows a user."""
    try:
        with open(_LIMIT, "rb") as file:
            return int(file.read())
    except OSError:
        return 0


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
