"""The helper's own process: everything loaded, no thread, no connection to anything; it waits and forks.

    python -P -m reprieve.cli.helper.server HOME FOLDER IDLE_S      (descriptor 3 is its lock, see start)

It ends when nobody asked for a while, when its socket is no longer the one in the home, when its code on disk has
changed, and on SIGTERM. Commands that run then go on: they are processes of their own.
"""

from __future__ import annotations

import _signal
import gc
import marshal
import os
import select
import socket
import struct
import sys
import time

from reprieve.cli.helper import peer, place, preload, stead
from reprieve.cli.helper.folders import Folders
from reprieve.cli.helper.quick import Quick, receive
from reprieve.cli.helper.start import LOCK_FD
from reprieve.cli.helper.watches import Watches
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.app.promising import Ticket

_LOOK_S = 30.0  # how often to look whether the socket is still there
_REST_S = 30.0  # as long does a command have the processors without us
_REPLY = struct.Struct("=cIII")  # "A", exit code, length of standard output and of standard error, which follow
_SPARE_S = 0.1  # a spare is forked when the command has ended, which goes first, or after this
_YIELD_S = 0.003  # who was answered goes first: it is woken on this very processor, and waits as long as we work on
_PAGES_S = 0.03  # by then a spare has copied what it shares with us
_PAGES = 1 << 20  # bytes at a time, a quarter of a millisecond: as long may an answer have to wait


class Self:
    """What the helper is, for comparison with those who ask."""

    def __init__(self, home: int, path: str, folder: bytes) -> None:
        self.path = path
        self.folder = folder
        self.pid = os.getpid()
        known = peer.status("self")
        self.is_confined = peer.is_confined(known)
        self.namespaces = peer.namespaces()
        self.portrait = peer.portrait("self", known, self.namespaces)
        self.rights = peer.rights("self", self.namespaces)
        self.limits = peer.limits("self")
        first = peer.first_environment()
        self.frozen = peer.frozen(first)
        # Python gives itself, and what it starts, a locale with UTF-8 where there is none (PEP 538)
        self.coerced = {name: value for name, value in peer.frozen(os.environb).items() if first.get(name) != value}
        self.encoding = sys.stdout.encoding, sys.stdout.errors or "strict"
        # of what is loaded; not of what it will know about trees, which no command needs
        self.pages = stead.own_pages()
        self._home = _identity(os.fstat(home))
        self._files = [(path, _version(path)) for path in preload.files()]
        self._folders = Folders({os.path.dirname(path) for path, _ in self._files})

    def is_fresh(self) -> bool:
        """Whether the code on disk is still the code that was loaded."""
        return all(_version(path) == version for path, version in self._files)

    def seems_fresh(self) -> bool:
        """The same at a hundredth of the cost: whether anything happened in those folders, or above them.

        A link that another link leads to is not noticed by this, so `is_fresh` has to follow when there is time.
        """
        return self._folders.are_quiet() or self.is_fresh()

    def close(self) -> None:
        """In a fork: let go of what is only the helper's."""
        self._folders.close()

    def is_home(self, path: str) -> bool:
        """Whether that is the store that this helper is for."""
        return _identity(os.lstat(path)) == self._home


class Child(Value):
    """A fork. `channel` leads to it: the caller's connection goes that way, and its questions come back."""

    pid: int
    channel: socket.socket
    connection: socket.socket | None = None  # of the caller; None: it waits for one


class Server:
    """The loop. `children` are the commands that run; a spare one waits, because forking takes a while."""

    def __init__(self, me: Self, home: int, *, idle_s: float) -> None:
        self.me = me
        self.home = home
        self.idle_s = idle_s
        self.children: dict[int, Child] = {}
        self.spare: Child | None = None
        self.is_spare_wanted = True
        self.watches = Watches(LOCK_FD)
        self.is_ending = False
        self.is_fresh = True
        self._due: dict[Callable[[], None], float] = {}  # what is done when nobody waits, and when
        self._shared: list[tuple[int, int]] = []  # memory that the next write would fault on, since the last fork
        self._promised: list[Ticket] = []  # given, to be kept
        self.wake, self._awake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(self._awake)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGTERM, self._end)
        self.quick = Quick(me, self.watches)
        os.umask(0o177)
        self.hooks = self._listen(place.HOOKS)
        self.listener = self._listen(place.SOCKET)
        self._mine = _identity(os.stat(place.SOCKET, dir_fd=home, follow_symlinks=False))

    def _listen(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        temporary = f"tmp/{name}.{os.getpid()}"
        listener.bind(place.address(self.home, temporary))
        listener.listen(128)
        os.rename(temporary, name, src_dir_fd=self.home, dst_dir_fd=self.home)
        return listener

    def run(self) -> None:
        asked_at = looked_at = time.monotonic()
        while not self.is_ending:
            now = time.monotonic()
            if now - asked_at >= self.idle_s and not self.children:
                break
            if now - looked_at >= _LOOK_S:
                looked_at = now
                if not self._is_there():
                    break
            if self.is_spare_wanted and (not self.children or now - asked_at >= _SPARE_S):
                self.spare = self._fork(None)
                self.is_spare_wanted = False  # if that one is killed there will be another with the next request
            self._do_due(now)
            self.watches.rest_until = asked_at + _REST_S if self.children else 0.0
            ready = self._wait(asked_at)
            # before who ended is buried: it may have left something
            for child in list(self.children.values()):
                if child.channel.fileno() in ready:
                    asked_at = time.monotonic()
                    if not self.watches.answer(child.channel):
                        child.channel.close()
                    self._take_ticket()
            if self.wake in ready:
                os.read(self.wake, 4096)
                self._reap()
                asked_at = max(asked_at, time.monotonic() - self.idle_s / 2)  # it stays after a long command, too
            for listener, answer in ((self.hooks, self._answer_hook), (self.listener, self._answer)):
                if listener.fileno() in ready and (connection := _accept(listener)) is not None:
                    answer(connection)
                    asked_at = time.monotonic()
            self.watches.work(ready)
        self._after_answers()
        if self._is_there():
            os.unlink(place.SOCKET, dir_fd=self.home)
            os.unlink(place.HOOKS, dir_fd=self.home)

    def _soon(self, what: Callable[[], None], seconds: float) -> None:
        self._due.setdefault(what, time.monotonic() + seconds)

    def _do_due(self, now: float) -> None:
        for what in [what for what, at in self._due.items() if at <= now]:
            del self._due[what]
            what()

    def _take_ticket(self) -> None:
        ticket, self.watches.ticket = self.watches.ticket, b""
        if ticket:
            self.quick.take(ticket)

    def _wait(self, asked_at: float) -> set[int]:
        """Until something can be read, or there is something to do."""
        waits = [_LOOK_S, self.watches.patience_s()]
        if not self.children:
            waits.append(max(0.0, asked_at + self.idle_s - time.monotonic()))
        if self.is_spare_wanted:
            waits.append(_SPARE_S)
        if self._due:
            waits.append(max(0.0, min(self._due.values()) - time.monotonic()))
        poll = select.poll()
        for fd in (self.listener.fileno(), self.hooks.fileno(), self.wake, *self.watches.fds()):
            poll.register(fd, select.POLLIN)
        for child in self.children.values():
            if child.channel.fileno() >= 0:
                poll.register(child.channel.fileno(), select.POLLIN)
        return {fd for fd, _ in poll.poll(min(waits) * 1000 + (min(waits) > 0))}

    def _answer_hook(self, connection: socket.socket) -> None:
        """Answer an agent's hook here, or have it answered by a fork."""
        try:
            asked = receive(connection, self.me) if self.is_fresh and self.me.seems_fresh() else None
            reply, used = self.quick.answer(asked) if asked is not None else (None, None)
            if reply is not None:
                out, err, code = reply
                connection.sendall(_REPLY.pack(b"A", code, len(out), len(err)) + out + err)
                connection.close()
        except (OSError, peer.Unlike):
            # it has gone, or is not our like; if it waits for an answer it gets it from a fork
            reply, used = None, None
        if reply is None:
            self._answer(connection)
            return
        if used is not None:
            self._promised.append(used)
        self._soon(self._after_answers, _YIELD_S)

    def _after_answers(self) -> None:
        while self._promised:
            self._keep(self._promised.pop(0))
        self.is_fresh = self.me.is_fresh()

    def _keep(self, ticket: Ticket) -> None:
        """Have a promise kept, now that the agent has its answer."""
        child = self.spare or self._fork(None)
        self.spare, self.is_spare_wanted = None, True
        if child is None:
            return  # too many processes: the next command does it
        data = marshal.dumps(tuple(ticket))  # type: ignore[arg-type]
        try:
            child.channel.sendall(stead.KEEP + len(data).to_bytes(4, "little") + data)
        except OSError:
            child.channel.close()
            return
        self.children[child.pid] = child

    def _answer(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        verdict = stead.FRESH if self.is_fresh and self.me.seems_fresh() else stead.STALE
        child, self.spare, self.is_spare_wanted = self.spare, None, True
        if child is not None:
            try:
                socket.send_fds(child.channel, [stead.CALL], [connection.fileno()])
            except OSError:
                child.channel.close()  # it was killed; that it ended is noticed elsewhere
                child = None
        child = child or self._fork(connection)
        if child is None:
            connection.close()  # too many processes: the caller says so itself, in its own words
            return
        self.children[child.pid] = child.replace(connection=connection)
        try:
            child.channel.send(verdict)
        except OSError:
            return  # it ended; that is noticed elsewhere

    def _fork(self, connection: socket.socket | None) -> Child | None:
        """A child that serves this connection, or the next one."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            its.close()
            return None
        if pid == 0:
            try:
                gc.set_threshold(200_000)  # as in entry.run: a command ends before its garbage counts
                ours.close()
                self._let_go()
                stead.serve(connection or self._as_spare(its), self.me, its)
            finally:
                os._exit(70)
        its.close()
        self._shared = []
        self._due[self._have_pages] = time.monotonic() + _PAGES_S
        return Child(pid, ours)

    def _have_pages(self) -> None:
        """Have our memory for us again, some of it at a time: after a fork each first write to a page is a fault.

        An answer touches some 370 pages, which is a fifth of its time. Only what a spare copies as well: what is
        known about trees is shared with it, and should stay so.
        """
        if not self._shared:
            self._shared = [
                (at, min(at + _PAGES, last)) for first, last in self.me.pages for at in range(first, last, _PAGES)
            ]
        stead.have_pages(self._shared[-1:])
        del self._shared[-1:]
        if self._shared:
            self._soon(self._have_pages, 0.0)

    def _as_spare(self, channel: socket.socket) -> socket.socket:
        """In the fork: be ready, and wait until somebody asks."""
        root = self.watches.newest()
        return stead.wait_for_connection(channel, self.me.pages, store=self.me.path if root else "", root=root)

    def _let_go(self) -> None:
        """In the fork: nothing of the server's stays, above all not its lock and the connections of others."""
        _signal.set_wakeup_fd(-1)
        for number in (_signal.SIGCHLD, _signal.SIGTERM):
            _signal.signal(number, _signal.SIG_DFL)
        for fd in (LOCK_FD, self.home, self.wake, self._awake):
            os.close(fd)
        self.listener.close()
        self.hooks.close()
        self.quick.close()
        self.me.close()
        self.watches.close()
        for other in (*self.children.values(), *((self.spare,) if self.spare is not None else ())):
            other.channel.close()
            if other.connection is not None:
                other.connection.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self.spare is not None and pid == self.spare.pid:
                self.spare.channel.close()
                self.spare = None
            child = self.children.pop(pid, None)
            if child is None:
                continue
            child.channel.close()
            self._soon(self._after_answers, _YIELD_S)
            if child.connection is None:
                continue
            with child.connection as connection:
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


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except OSError:
        return None  # the caller has gone again


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
    me = Self(home, argv[0], os.fsencode(argv[1]))
    if me.is_confined or len(os.listdir("/proc/self/task")) > 1:
        return 1
    gc.collect()
    gc.freeze()
    Server(me, home, idle_s=float(argv[2])).run()
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
