"""Whether anything happened in some folders: asked before each answer, so it must cost next to nothing."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# names that come and go, the folder itself moved or deleted; and contents, attributes
_NAMES = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_CHANGES = _NAMES | 0x2 | 0x4
_ADD = 0x20000000  # to what is watched already, if two of them are one


class Folders:
    """These folders, followed with inotify. Where that is not possible they are never quiet."""

    def __init__(self, folders: Iterable[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_whole = self._fd >= 0
        changes = dict.fromkeys(folders, _CHANGES)
        for folder in tuple(changes):
            while (folder := os.path.dirname(folder)) not in changes:
                changes[folder] = _NAMES  # another folder may come to be in this one's place
        for folder, mask in changes.items():
            self._is_whole &= libc.inotify_add_watch(self._fd, os.fsencode(folder), mask | _ADD) >= 0

    def are_quiet(self) -> bool:
        """Whether nothing happened there since this was last asked."""
        if not self._is_whole:
            return False
        try:
            os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            self._is_whole = False
        return False

    def close(self) -> None:
        """Follow them no longer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
