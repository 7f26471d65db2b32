"""Answer an agent's hook in the helper itself, without a fork, where there is nothing to do or a promise will do.

The launcher sends what a hook gets (words, variables, payload) on a socket of its own, `hooks`, and no descriptors.
What can't be answered here is handed to a fork like any other command, and the launcher goes on as for any other.

Nothing here works with rights that the caller has not: it is compared with the helper as a fork would do it.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import time

from reprieve.app import promising
from reprieve.app.promising import Ticket
from reprieve.cli import hooking
from reprieve.cli.helper import peer
from reprieve.cli.helper.stead import CREDENTIALS, take_strings
from reprieve.files import native, processes, told, tree
from reprieve.files.index import load_index
from reprieve.model.hookevent import BEFORE
from reprieve.model.value import Value
from reprieve.store import promises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.cli.helper.server import Self
    from reprieve.cli.helper.watches import Watches
    from reprieve.model.hookevent import HookEvent, Reply
    from reprieve.store.protocols import Buffer

_HEADER = struct.Struct("=IIIII")  # protocol, length of all, words, variables, length of the payload
_PROTOCOL = 0x31515052  # "RPQ1"
_LARGEST = 1 << 18
_PATIENCE_S = 0.05  # the launcher has sent it all before we hear of it
_MOST_LOOKS = 200  # rows; more is a command's work
_MOST = 4  # tickets, as trees that are followed
_RACY_NS = 20_000_000  # as in files.snapshot


class Asked(Value):
    """What the launcher sent."""

    caller: int
    words: tuple[str, ...]
    variables: dict[str, str]
    payload: bytes


class Held(Value):
    """A ticket, with what is needed at once when it is used."""

    ticket: Ticket
    index: Buffer
    mark: told.Mark
    untold: tuple[int, ...]
    database: int
    slot: int  # the file for the promise


def receive(connection: socket.socket, me: Self) -> Asked | None:
    """What is asked, if it is asked of us; None: that is for a fork to find out."""
    connection.settimeout(_PATIENCE_S)
    caller, uid, gid = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    data = connection.recv(_LARGEST)
    if len(data) < _HEADER.size:
        return None
    protocol, length, words, variables, size = _HEADER.unpack_from(data)
    if protocol != _PROTOCOL or not _HEADER.size + size <= length <= _LARGEST:
        return None
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            return None
        data += part
    if not caller or (uid, gid) != (os.geteuid(), os.getegid()):
        return None
    (folder, _, *said), given = take_strings(data[_HEADER.size : length - size], words, variables)
    if folder != me.folder or peer.frozen(given) != me.frozen:
        return None
    texts = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    return Asked(caller, tuple(map(os.fsdecode, said[1:])), texts, data[length - size :])


class Quick:
    """The tickets that there are."""

    def __init__(self, me: Self, watches: Watches) -> None:
        self._me, self._watches = me, watches
        self._held: dict[str, Held] = {}  # by workspace

    def close(self) -> None:
        """Let go of everything; in a fork, of its copy."""
        for held in self._held.values():
            _let_go(held)
        self._held = {}

    def take(self, data: bytes) -> None:
        """Keep a ticket that a command has left. One that is of no use is dropped: only speed is lost."""
        ticket = Ticket(*marshal.loads(data))
        self._drop(ticket.workspace)
        index = load_index(ticket.index, ticket.tag)
        if index is None or index.base is None or index.mark is None:
            return
        fds: list[int] = []
        try:
            fds.append(os.open(os.path.join(ticket.home, "store.db"), os.O_RDONLY | os.O_CLOEXEC))
            slot = promises.path_of(ticket.home, ticket.workspace)
            fds.append(os.open(slot, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError:
            for fd in fds:
                os.close(fd)
            return
        while len(self._held) >= _MOST:
            self._drop(next(iter(self._held)))
        untold = tuple(told.untold_rows(index.base))
        self._held[ticket.workspace] = Held(ticket, index.base, index.mark, untold, fds[0], fds[1])

    def answer(self, asked: Asked) -> tuple[Reply | None, Ticket | None]:
        """The reply, None if a command has to make it; and the ticket of a promise that is to be kept now.

        Only for who may what we may. Most events are a command's, so that is not looked at before it matters.
        """
        used: list[Ticket] = []

        def begin(event: HookEvent, *, can_note: bool) -> bool:
            if event.kind != BEFORE or not self._held or not self._is_like(asked.caller):
                return False
            for held in list(self._held.values()):
                if promising.fits(held.ticket, event, asked.variables):
                    if self._promise(held, event, asked.caller, can_note=can_note):
                        used.append(held.ticket)
                        return True
                    break
            return False

        reply = hooking.quick_reply(asked.words, asked.payload, asked.variables, begin)
        if reply is not None and not used and not self._is_like(asked.caller):
            reply = None
        return reply, used[0] if used else None

    def _is_like(self, caller: int) -> bool:
        try:
            return peer.rights(caller, self._me.namespaces) == self._me.rights
        except OSError:
            return False  # it has gone

    def _promise(self, held: Held, event: HookEvent, caller: int, *, can_note: bool) -> bool:
        """Whether the checkpoint before a call is promised."""
        processes.stand_for(caller)
        is_done = promising.promise(
            held.ticket,
            event,
            can_note=can_note,
            database=held.database,
            slot=held.slot,
            is_unchanged=lambda: self._is_unchanged(held),
        )
        if not is_done and not promising.is_untouched(held.ticket, held.database):
            self._drop(held.ticket.workspace)
        return is_done

    def _is_unchanged(self, held: Held) -> bool:
        ticket = held.ticket
        seconds, ns = divmod(time.time_ns() - _RACY_NS, 1_000_000_000)
        paths = self._watches.since(ticket.root, ticket.node, held.mark)
        if paths is None or len(paths) > _MOST_LOOKS:
            return False
        look = told.rows_to_look_at(held.index, paths.items(), untold=held.untold)
        if not look:
            return True
        if len(look) // 4 > _MOST_LOOKS:
            return False
        root = os.open(ticket.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            how = (root, held.index, seconds, ns, ticket.cross_mounts, None, frozenset[bytes]())
            rows, gone, problems = native.scan(*how, look)
        except LookupError:
            return False  # the tree is not as it was told
        finally:
            os.close(root)
        return not (tree.count(rows) or gone or problems)

    def _drop(self, workspace: str) -> None:
        held = self._held.pop(workspace, None)
        if held is not None:
            _let_go(held)


def _let_go(held: Held) -> None:
    os.close(held.database)
    os.close(held.slot)
