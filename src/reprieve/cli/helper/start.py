"""Start the helper at the end of a command that would have liked to have one."""

from __future__ import annotations

import os
import sys

from reprieve.app import config, places
from reprieve.cli.helper import peer, place
from reprieve.errors import ReprieveError

LOCK_FD = 3  # where the helper finds its lock, held from before it is started: of many who want one, one starts it
_IDLE_S = 600
_KEPT = (b"HOME", b"PATH")


def start(folder: str) -> None:
    """Leave a helper behind, detached from everything here. No error: whatever stands against it, it is only speed."""
    try:
        if not config.load().helper:
            return
        home = places.home()
        lock = place.take_lock(place.open_home(home))
        _spawn(home, folder, lock)
    except (OSError, ReprieveError):
        return


def _spawn(home: str, folder: str, lock: int) -> None:
    # For its working directory; the present process ends now
    os.chdir("/")
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, lock, LOCK_FD)]
    # An agent that reads our output until its end would wait for whoever else has it open
    others = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, LOCK_FD}
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in sorted(others) if _is_open(fd)]
    opens = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    started_with = peer.first_environment()
    kept = {name: value for name, value in started_with.items() if name in _KEPT}
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "reprieve.cli.helper.server", home, folder, str(_idle_s())],
        {**kept, **peer.frozen(started_with)},
        file_actions=[*opens, *actions],
        setsid=True,
        setsigmask=(),
        setsigdef=[number for number in range(1, 32) if number not in (9, 19)],
    )


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False  # that of the listing itself
    return True


def _idle_s() -> int:
    given = os.environ.get("REPRIEVE_HELPER_IDLE", "")
    return int(given) if given.isascii() and given.isdigit() else _IDLE_S
