"""The helper's own process: everything loaded, no thread, no connection to anything; it waits and forks.

    python -P -m reprieve.cli.helper.server HOME FOLDER IDLE_S      (descriptor 3 is its lock, see start)

It ends when nobody asked for a while, when its socket is no longer the one in the home, when its code on disk has
changed, and on SIGTERM. Commands that run then go on: they are processes of their own.
"""

from __future__ import annotations

import _signal
import gc
import os
import select
import socket
import struct
import sys
import time

from reprieve.cli.helper import peer, place, preload, stead
from reprieve.cli.helper.start import LOCK_FD

_LOOK_S = 30.0  # how often to look whether the socket is still there


class Self:
    """What the helper is, for comparison with those who ask."""

    def __init__(self, home: int, folder: bytes) -> None:
        self.folder = folder
        self.pid = os.getpid()
        known = peer.status("self")
        self.is_confined = peer.is_confined(known)
        self.portrait = peer.portrait("self", known)
        first = peer.first_environment()
        self.frozen = peer.frozen(first)
        # Python gives itself, and what it starts, a locale with UTF-8 where there is none (PEP 538)
        self.coerced = {name: value for name, value in peer.frozen(os.environb).items() if first.get(name) != value}
        self.encoding = sys.stdout.encoding, sys.stdout.errors or "strict"
        self._home = _identity(os.fstat(home))
        self._files = [(path, _version(path)) for path in preload.files()]

    def is_fresh(self) -> bool:
        """Whether the code on disk is still the code that was loaded."""
        return all(_version(path) == version for path, version in self._files)

    def is_home(self, path: str) -> bool:
        """Whether that is the store that this helper is for."""
        return _identity(os.lstat(path)) == self._home


class Server:
    """The loop. `children` has the connection of each command that runs, to say so if it dies of a signal."""

    def __init__(self, me: Self, home: int, *, idle_s: float) -> None:
        self.me = me
        self.home = home
        self.idle_s = idle_s
        self.children: dict[int, socket.socket] = {}
        self.is_ending = False
        self.wake, self._awake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(self._awake)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGTERM, self._end)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        os.umask(0o177)
        temporary = f"tmp/helper.{os.getpid()}"
        self.listener.bind(place.address(home, temporary))
        self.listener.listen(128)
        os.rename(temporary, place.SOCKET, src_dir_fd=home, dst_dir_fd=home)
        self._mine = _identity(os.stat(place.SOCKET, dir_fd=home, follow_symlinks=False))

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        asked_at = time.monotonic()
        while not self.is_ending:
            idle = time.monotonic() - asked_at
            if idle >= self.idle_s and not self.children:
                break
            wait_s = _LOOK_S if self.children else min(_LOOK_S, self.idle_s - idle)
            ready = {fd for fd, _ in poll.poll(wait_s * 1000 + 1)}
            if self.wake in ready:
                os.read(self.wake, 4096)
                self._reap()
            if self.listener.fileno() in ready:
                self._answer()
            if ready:
                asked_at = time.monotonic()
            elif not self._is_there():
                return
        if self._is_there():
            os.unlink(place.SOCKET, dir_fd=self.home)

    def _answer(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return  # the caller has gone again
        connection.setblocking(True)
        try:
            pid = os.fork()
        except OSError:
            connection.close()  # too many processes: the caller says so itself, in its own words
            return
        if pid == 0:
            try:
                self._let_go()
                stead.serve(connection, self.me)
            finally:
                os._exit(70)
        self.children[pid] = connection

    def _let_go(self) -> None:
        """In the fork: nothing of the server's stays, above all not its lock and the connections of others."""
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        for fd in (LOCK_FD, self.home, self.wake, self._awake):
            os.close(fd)
        self.listener.close()
        for other in self.children.values():
            other.close()

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self.children.pop(pid) as connection:
                if os.WIFSIGNALED(status):
                    try:
                        connection.send(struct.pack("=cI", b"S", os.WTERMSIG(status)), socket.MSG_DONTWAIT)
                    except OSError:
                        continue  # the caller has gone

    def _is_there(self) -> bool:
        try:
            found = os.stat(place.SOCKET, dir_fd=self.home, follow_symlinks=False)
        except OSError:
            return False
        return _identity(found) == self._mine

    def _end(self, *_: object) -> None:
        self.is_ending = True


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _version(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def main(argv: list[str]) -> int:
    """Serve one store until it is time to end."""
    home = place.open_home(argv[0])
    preload.load()
    me = Self(home, os.fsencode(argv[1]))
    if me.is_confined or len(os.listdir("/proc/self/task")) > 1:
        return 1
    gc.collect()
    gc.freeze()
    Server(me, home, idle_s=float(argv[2])).run()
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
