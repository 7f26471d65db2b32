"""Who may work now: kernel locks (flock) that die with their process, so none is ever stale.

`locks/<workspace>` is held by whoever works on a workspace; `locks/gc` is shared by all of them and exclusive for the
collection of garbage. Each thread opens the file for itself, so the kernel keeps threads apart like processes. The
number in a lock file is for people; the kernel's lock decides. A workspace's also counts who had it (`turns`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from _thread import get_ident
from time import monotonic, sleep

from reprieve.errors import StoreFailed, StoreLocked
from reprieve.model.reporter import Reporter
from reprieve.store.faults import failed
from reprieve.store.forks import tell_on_fork
from reprieve.store.home import undo_umask
from reprieve.store.turns import LENGTH, next_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from reprieve.store.home import Home

GC = "gc"
PATIENCE_S = 60.0
_SAY_AFTER_S = 1.0
# Pauses between two tries, since flock has no time limit of its own; short ones while a handover may be near.
_SHORTEST_S, _LONGER_S, _LONGEST_S = 0.0005, 0.01, 0.05
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Locks:
    """The locks of one home."""

    def __init__(self, home: Home, *, reporter: Reporter | None = None) -> None:
        self._home = home
        self._reporter = reporter or Reporter()
        self._pid = os.getpid()
        self._held: dict[tuple[int, str], _Held] = {}  # by thread and name
        tell_on_fork(self)

    def workspace(
        self, workspace_id: str, *, wait_s: float = PATIENCE_S, left: Callable[[], None] | None = None
    ) -> Lock:
        """Alone on a workspace, and no garbage collection meanwhile; `left` is called when it was given back."""
        if workspace_id == GC or not is_plain_name(workspace_id):
            raise ValueError(f"not a workspace id: {workspace_id!r}")
        return Lock(self, ((GC, False), (workspace_id, True)), wait_s, left)

    def shared_gc(self, *, wait_s: float = PATIENCE_S) -> Lock:
        """No garbage collection meanwhile."""
        return Lock(self, ((GC, False),), wait_s)

    def gc(self, *, wait_s: float = PATIENCE_S) -> Lock:
        """Alone in the store.

        Inside of `workspace` the shared lock is turned into an exclusive one. While it waits for others it holds
        none, so everything written before must be committed by then.
        """
        return Lock(self, ((GC, True),), wait_s)

    @property
    def is_gc_held(self) -> bool:
        """This thread is alone in the store."""
        held = self._held.get((get_ident(), GC))
        return held is not None and held.exclusive > 0

    @property
    def gc_scope(self) -> object:
        """Something that stays the same as long as this thread holds off gc; None if it does not."""
        return self._held.get((get_ident(), GC))

    @property
    def is_gc_held_off_once(self) -> bool:
        """This thread holds gc off by one lock and no more."""
        held = self._held.get((get_ident(), GC))
        return held is not None and held.shared == 1 and not held.exclusive

    def close(self) -> None:
        """Let go of everything this process holds."""
        held, self._held = self._held, {}
        for one in held.values():
            os.close(one.fd)

    def _acquire(self, name: str, *, exclusive: bool, wait_s: float) -> None:
        if os.getpid() != self._pid:
            raise StoreFailed(
                "the store was opened before this process was forked", hints=["open the workspace again in the child"]
            )
        key = (get_ident(), name)
        held = self._held.get(key)
        if held is None:
            fd = self._open(name)
            try:
                self._wait(fd, name, exclusive=exclusive, wait_s=wait_s)
            except BaseException:
                os.close(fd)
                raise
            self._held[key] = _Held(fd, exclusive)
            return
        if exclusive and not held.exclusive:
            try:
                self._wait(held.fd, name, exclusive=True, wait_s=wait_s)
            except BaseException:
                fcntl.flock(held.fd, fcntl.LOCK_SH)
                raise
        if exclusive:
            held.exclusive += 1
        else:
            held.shared += 1

    def _release(self, name: str, *, exclusive: bool) -> None:
        key = (get_ident(), name)
        held = self._held.get(key)
        if held is None:
            return  # closed meanwhile, or a forked child leaving its parent's block
        if exclusive:
            held.exclusive -= 1
            if name == GC and not held.exclusive:
                os.ftruncate(held.fd, 0)  # its next holders may be many; none of them writes its number
        else:
            held.shared -= 1
        if not held.exclusive and not held.shared:
            del self._held[key]
            # explicitly: a forked child may still have the descriptor, and closing ours would then not unlock
            fcntl.flock(held.fd, fcntl.LOCK_UN)
            os.close(held.fd)
        elif exclusive and not held.exclusive:
            fcntl.flock(held.fd, fcntl.LOCK_SH)

    def _open(self, name: str) -> int:
        path = self._home.file("locks", name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                fd = os.open(path, flags, 0o600)
            except FileNotFoundError:
                self._home.make_directories()
                fd = os.open(path, flags, 0o600)
            undo_umask(fd)
        except OSError as exc:
            raise failed(exc, path, f"open the lock {path!r}") from exc
        return fd

    def _wait(self, fd: int, name: str, *, exclusive: bool, wait_s: float) -> None:
        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        try:
            wait_for_flock(fd, how, what=self._what(name), wait_s=wait_s, reporter=self._reporter)
            if exclusive and name == GC:
                self._write_number(fd)
            elif exclusive:
                os.pwrite(fd, b"%-10d\n" % self._pid + next_turn(os.pread(fd, LENGTH, 0), self._pid), 0)
        except OSError as exc:
            path = self._home.file("locks", name)
            raise failed(exc, path, f"lock {path!r}") from exc

    def _write_number(self, fd: int) -> None:
        """For people alone; whoever takes the store to free space on a full disk must not need any for that."""
        try:
            os.pwrite(fd, b"%-10d\n" % self._pid, 0)
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _what(self, name: str) -> str:
        return "the store" if name == GC else f"the workspace {name}"

    def _forked(self) -> None:
        self.close()


class Lock:
    """`with` block; takes its locks in order and gives them back in reverse."""

    def __init__(
        self,
        locks: Locks,
        wanted: tuple[tuple[str, bool], ...],
        wait_s: float,
        left: Callable[[], None] | None = None,
    ) -> None:
        self._locks = locks
        self._wanted = wanted
        self._wait_s = wait_s
        self._left = left

    def __enter__(self) -> None:
        taken: list[tuple[str, bool]] = []
        try:
            for name, exclusive in self._wanted:
                self._locks._acquire(name, exclusive=exclusive, wait_s=self._wait_s)
                taken.append((name, exclusive))
        except BaseException:
            for name, exclusive in reversed(taken):
                self._locks._release(name, exclusive=exclusive)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, exclusive in reversed(self._wanted):
            self._locks._release(name, exclusive=exclusive)
        if self._left is not None:
            self._left()


class _Held:
    """A lock that a thread has, and how many times."""

    def __init__(self, fd: int, exclusive: bool) -> None:
        self.fd = fd
        self.exclusive = 1 if exclusive else 0
        self.shared = 0 if exclusive else 1


def is_plain_name(text: str) -> bool:
    """Text that is safe as a file name: letters, digits, `_` and `-`."""
    return bool(text) and _NAME_LETTERS.issuperset(text)


def wait_for_flock(fd: int, how: int, *, what: str, wait_s: float, reporter: Reporter) -> None:
    """Take the lock, in time or not at all (StoreLocked). Raises OSError where the file system has no locks."""
    started = monotonic()
    pause_s = _SHORTEST_S
    said = False
    while True:
        try:
            fcntl.flock(fd, how)
            return
        except BlockingIOError:
            waited_s = monotonic() - started
            if waited_s >= wait_s:
                raise _locked(fd, what, wait_s) from None
        if waited_s >= _SAY_AFTER_S and not said:
            reporter.note(f"waiting for {_holder(fd) or 'another process'} to finish with {what}")
            said = True
        sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_S if said else _LONGER_S)


def _locked(fd: int, what: str, wait_s: float) -> StoreLocked:
    holder = _holder(fd)
    return StoreLocked(
        f"{what} is in use by {holder or 'another process'}; waited {wait_s:g} s",
        hints=[
            f"see what it does: ps {holder.split()[1]}" if holder else "see who holds it: lslocks",
            "try again later",
        ],
        data={"holder": int(holder.split()[1]) if holder else None},
    )


def _holder(fd: int) -> str:
    """`process 1234`, or "" if nobody wrote a number (shared locks have many holders)."""
    try:
        number = os.pread(fd, 20, 0).split()
    except OSError:
        return ""
    if not number or not number[0].isdigit():
        return ""
    return f"process {int(number[0])}"
