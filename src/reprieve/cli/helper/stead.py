"""Run one command in the stead of the process that asked: a fork of the helper becomes what Python started by that
process would be, and says how it ended.

Until "go" comes nothing is done that anybody could see, so that the caller can always start Python itself instead.
"""

from __future__ import annotations

import _signal
import array
import ctypes
import fcntl
import io
import marshal
import os
import select
import socket
import struct
import sys
import time

from reprieve.app import config, places
from reprieve.app.finding import open_workspace
from reprieve.app.promising import Ticket, leave_ticket
from reprieve.cli import entry
from reprieve.cli.helper import peer
from reprieve.cli.helper.peer import Unlike
from reprieve.errors import ReprieveError
from reprieve.files import afterwards, processes, told
from reprieve.store.local import open_early

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, TextIO

    from reprieve.cli.helper.server import Self

PROTOCOL = 0x31485052
FRESH, STALE = b"F", b"S"  # from the helper: whether the code on disk is the code that was loaded
CALL, KEEP = b"C", b"K"  # what a spare fork is needed for
_HEADER = struct.Struct("=IIII")
_ANSWER = struct.Struct("=cI")
_LARGEST = 8 << 20
CREDENTIALS = struct.Struct("=iII")
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
_MOST_PAGES = 64 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_ROOM, _LARGE = 16 << 20, 4 << 20  # bytes; what is larger is had from the system, and given back at once
_LIBC = ctypes.CDLL(None)
_YIELD_MS = 3  # as long does the caller have to end, before what can wait is done
_BURST_MS = 20  # who calls that soon after the last command would wait longer for a store that is being opened


class Stale(Exception):
    """The helper itself is not what would be started now; it has to end."""


class Request:
    """What the launcher sent."""

    def __init__(self, data: bytes, fds: Sequence[int]) -> None:
        protocol, length, words, variables = _HEADER.unpack_from(data)
        if protocol != PROTOCOL or length != len(data) or len(fds) != 4:
            raise Unlike("another protocol")
        (self.folder, self.name, *self.words), self.variables = take_strings(data[_HEADER.size :], words, variables)
        self.fds = fds


def take_strings(data: bytes, words: int, variables: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Folder, name and words of a call, and its variables."""
    strings = data.split(b"\0")
    if len(strings) != 3 + words + variables:
        raise Unlike("another protocol")
    found: dict[bytes, bytes] = {}
    for text in strings[2 + words : -1]:
        name, sign, value = text.partition(b"=")
        if not name or not sign or name in found:
            raise Unlike("strange variables")  # Python and its C library would disagree about them
        found[name] = value
    found.pop(b"REPRIEVE_LAUNCHED", None)
    return strings[: 2 + words], found


def wait_for_connection(
    channel: socket.socket, pages: Sequence[tuple[int, int]], *, store: str, root: bytes
) -> socket.socket:
    """What a spare fork does until it is needed: for a command, or to keep a promise. It ends with the helper.

    `store`, if there is one to be opened, and `root`: where the last command was at work, and so will be the next.
    """
    name = _rename(b"reprieve-spare")
    have_pages(pages)
    _have_room()
    if store and not _is_waiting(channel, _BURST_MS):
        try:
            open_early(store, root)
        except (ReprieveError, OSError):
            store = ""  # the command opens it itself, and says what is wrong
    try:
        data, fds, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError:
        os._exit(0)
    if data == KEEP:
        _rename(name)
        keep(channel)
    if not data or not fds:
        os._exit(0)
    os.set_inheritable(fds[0], False)
    _rename(name)
    return socket.socket(fileno=fds[0])


def _is_waiting(channel: socket.socket, ms: int = 0) -> bool:
    """Whether there is something to read from it, now or until then."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(ms))


def own_pages() -> list[tuple[int, int]]:
    """Where this process has memory that a fork copies when it writes there, not too much: (first, behind the last)."""
    with open("/proc/self/maps", "rb") as maps:
        lines = maps.read().splitlines()
    found, left = [], _MOST_PAGES
    for line in lines:
        place, rights = line.split()[:2]
        first, last = (int(end, 16) for end in place.split(b"-"))
        if rights == b"rw-p" and not line.endswith(b"[stack]") and last - first <= left:
            found.append((first, last))
            left -= last - first
    return found


def have_pages(pages: Sequence[tuple[int, int]]) -> None:
    """Copy what is shared since a fork now, and not page by page when it is needed."""
    for first, last in pages:
        # fails before Linux 5.14, and where it is no longer there; then it is only slower
        _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _POPULATE_WRITE)


def _have_room() -> None:
    """Have memory for what a command will make, an index above all, so that it need not come page by page then."""
    libc = _LIBC
    try:
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _ROOM)
    except AttributeError:
        return  # another C library: each of these comes from the system, and goes back to it
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    parts = [libc.malloc(ctypes.c_size_t(_LARGE // 2)) for _ in range(2 * _ROOM // _LARGE)]
    for part in parts:
        if part:
            ctypes.memset(part, 0, _LARGE // 2)
    for part in parts:
        libc.free(part)


def _rename(name: bytes) -> bytes:
    """Be called that in lists of processes; the old name."""
    fd = os.open("/proc/self/comm", os.O_RDWR | os.O_CLOEXEC)
    try:
        old = os.read(fd, 64).rstrip(b"\n")
        os.write(fd, name)
    finally:
        os.close(fd)
    return old


def keep(channel: socket.socket) -> NoReturn:
    """The whole life of a fork that puts a promised entry on the timeline. If it can't, the next command will."""
    size = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "little")
    ticket = Ticket(*marshal.loads(channel.recv(size, socket.MSG_WAITALL)))
    for name in [name for name in os.environ if name.startswith("REPRIEVE_")]:
        del os.environ[name]
    os.environ.update(ticket.variables)
    told.listen(channel)
    try:
        with open_workspace(os.fsdecode(ticket.root), exactly=True) as ws:
            ws.recover()
            leave_ticket(ws, ticket.again)
    except (ReprieveError, OSError):
        os._exit(1)
    os._exit(0)


def serve(connection: socket.socket, me: Self, channel: socket.socket) -> NoReturn:
    """The whole life of the fork. By `channel` the helper can be asked what changed in a tree."""
    try:
        connection.sendall(b"H")
        caller = _prepare(connection, me, channel)
    except Stale:
        if os.getppid() == me.pid:
            os.kill(me.pid, _signal.SIGTERM)
        _refuse(connection)
    except (Unlike, OSError, ReprieveError, ValueError, struct.error):
        _refuse(connection)
    connection.sendall(_ANSWER.pack(b"P", os.getpid()))
    _, sender = _receive(connection, 1)
    # Still the process that was looked at: another one cannot have got its number while it lived
    if sender != caller:
        os._exit(0)
    _stop_with_caller(connection)
    afterwards.expect()
    entry.hurry()
    code = _run()
    for fd in (0, 1, 2):
        os.close(fd)  # whoever reads our output need not wait for the end of this process
    fcntl.fcntl(connection, fcntl.F_SETFL, 0)
    connection.sendall(_ANSWER.pack(b"X", code & 0xFF))
    _is_waiting(connection, _YIELD_MS)  # it is woken on this very processor, and waits as long as we work on
    afterwards.run()
    os._exit(code & 0xFF)


def _refuse(connection: socket.socket) -> NoReturn:
    try:
        connection.sendall(b"D")
    except OSError:
        os._exit(0)  # nobody waits for it
    os._exit(0)


def _prepare(connection: socket.socket, me: Self, channel: socket.socket) -> int:
    """Become what the caller would have started. Raises if that is not possible or in doubt."""
    os.setsid()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    caller: int
    caller, uid, gid = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    if not caller or (uid, gid) != (os.geteuid(), os.getegid()):
        raise Unlike("another user")
    known = peer.status(caller)
    if peer.is_confined(known) or peer.portrait(caller, known, me.namespaces) != me.portrait:
        raise Unlike("other rights")
    request = _read_request(connection, caller)
    if request.folder != me.folder or peer.frozen(request.variables) != me.frozen:
        raise Unlike("another installation or locale")
    # Looked at by the helper while we did the above.
    if channel.recv(1) != FRESH:
        raise Stale
    ignored = peer.ignored_signals(known)
    if peer.limits(caller) != me.limits:
        peer.adopt_limits(caller)
    _take_over(request, me, int(known[b"Umask"], 8))
    if not me.is_home(places.home()):
        raise Unlike("another store")
    settings = config.load()
    if not settings.helper:
        raise Stale
    if settings.helper_watch:
        told.listen(channel)
    processes.stand_for(caller)
    for number in ignored:
        _signal.signal(number, _signal.SIG_IGN)
    return caller


def _read_request(connection: socket.socket, caller: int) -> Request:
    fds = array.array("i")
    space = socket.CMSG_SPACE(4 * fds.itemsize) + socket.CMSG_SPACE(CREDENTIALS.size)
    data, found, _, _ = connection.recvmsg(1 << 18, space, socket.MSG_CMSG_CLOEXEC)
    sender = 0
    for level, kind, content in found:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = CREDENTIALS.unpack(content)[0]
    if sender != caller or len(data) < _HEADER.size:
        raise Unlike("another sender")
    length = _HEADER.unpack_from(data)[1]
    if length > _LARGEST:
        raise Unlike("too much")
    parts = [data]
    left = length - len(data)
    while left > 0:
        part = connection.recv(min(left, 1 << 18))
        if not part:
            raise Unlike("the caller went away")
        parts.append(part)
        left -= len(part)
    return Request(b"".join(parts), fds)


def _receive(connection: socket.socket, size: int) -> tuple[bytes, int]:
    """Some bytes and the number of the process that sent them, 0 if there is none any more."""
    try:
        data, found, _, _ = connection.recvmsg(size, socket.CMSG_SPACE(CREDENTIALS.size))
    except OSError:
        return b"", 0
    if data != b"G" or not found:
        return data, 0
    return data, CREDENTIALS.unpack(found[0][2])[0]


def _take_over(request: Request, me: Self, umask: int) -> None:
    os.umask(umask)
    os.fchdir(request.fds[3])
    for number, fd in enumerate(request.fds[:3]):
        os.dup2(fd, number)
    for fd in request.fds:
        os.close(fd)
    os.environ.clear()
    for name, value in {**request.variables, **me.coerced}.items():
        os.environb[name] = value
    time.tzset()
    sys.argv = [os.fsdecode(word) for word in (request.name, *request.words)]
    encoding, errors = me.encoding
    is_buffered = not request.variables.get(b"PYTHONUNBUFFERED")
    sys.dont_write_bytecode = bool(request.variables.get(b"PYTHONDONTWRITEBYTECODE"))
    sys.stdin = _stream(0, "r", encoding, errors)
    sys.stdout = _stream(1, "w", encoding, errors, is_buffered=is_buffered)
    sys.stderr = _stream(2, "w", encoding, "backslashreplace", buffering=1, is_buffered=is_buffered)


def _stream(fd: int, mode: str, encoding: str, errors: str, *, buffering: int = -1, is_buffered: bool = True) -> TextIO:
    if not is_buffered:
        return io.TextIOWrapper(io.FileIO(fd, mode, closefd=False), encoding, errors, "\n", write_through=True)
    return open(fd, mode, buffering, encoding, errors, "\n", closefd=False)  # type: ignore[return-value]


def _stop_with_caller(connection: socket.socket) -> None:
    """Be told by a signal when the caller is killed: it cannot pass that on.

    The caller's "go" may come to waking us when it has long been read, so the signal only says that it is time to look.
    """

    def look(*_: object) -> None:
        if _is_waiting(connection):
            os.kill(os.getpid(), _signal.SIGTERM)

    _signal.signal(_signal.SIGIO, look)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, os.O_ASYNC)
    if _is_waiting(connection):  # it was killed just before
        os._exit(128 + _signal.SIGKILL)


def _run() -> int:
    try:
        return entry.main()
    except KeyboardInterrupt:  # Python, too, ends by the signal itself
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        os.kill(os.getpid(), _signal.SIGINT)
        return 130
    except BaseException:  # noqa: BLE001 - shown as Python shows it
        sys.excepthook(*sys.exc_info())
        return 1
