"""Whether anybody had a workspace's lock since it was seen free. Loaded before all the rest of a hook."""

from __future__ import annotations

import fcntl
import os

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # nobody has looked yet whose home it is
LENGTH = 64  # bytes, more than a lock file has


class Turn:
    """That a workspace was free at a moment, so as to know later that nobody had its lock in between.

    Whoever takes the lock writes below its number which turn that is, whose, and whose the one before was:

        1234            by any version, for people
        57 1234 1200    by this one. A version that does not count leaves two numbers that differ, or breaks the chain
    """

    def __init__(self, home: str, workspace_id: str) -> None:
        """Raises OSError if there is no such lock, BlockingIOError if somebody has it."""
        self._fd = os.open(os.path.join(home, "locks", workspace_id), _READ)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._seen = os.pread(self._fd, LENGTH, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except BaseException:
            self.close()
            raise

    def is_next(self) -> bool:
        """Whether this process has the lock now and is the first to have it since. To be asked by who has it."""
        if not _count(self._seen):
            return False
        pid = os.getpid()
        return os.pread(self._fd, LENGTH, 0) == b"%-10d\n" % pid + next_turn(self._seen, pid)

    def is_none(self) -> bool:
        """Whether nobody had the lock since. To be asked by who has it and did not count that."""
        return bool(_count(self._seen)) and os.pread(self._fd, LENGTH, 0) == self._seen

    def close(self) -> None:
        """Nothing more will be asked."""
        os.close(self._fd)


def _count(seen: bytes) -> int:
    """The number of the turn that a lock file tells of; 0 if it tells none that can be relied on."""
    words = seen.split()
    if len(words) != 4 or not words[1].isdigit() or words[0] != words[2]:
        return 0
    return int(words[1])


def next_turn(seen: bytes, pid: int) -> bytes:
    """What the next to take the lock writes below its number, if that was there; padded, to cover a longer one."""
    before = seen.split(None, 1)[0] if seen.strip() else b"0"
    return (b"%d %d %b" % (_count(seen) + 1, pid, before[:10])).ljust(40) + b"\n"
