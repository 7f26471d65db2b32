"""What the resident helper heard about a tree since an index was made: the rows of it that need a look.

Whoever works in the helper's stead has a connection to it (`listen`); all others are told nothing, and look at
everything. So does whoever gets no answer in time, or one that does not fit the index.
"""

from __future__ import annotations

import os
import struct

from reprieve.files import afterwards, native, tree
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Sequence

    from reprieve.store.protocols import Buffer

ASK, LIED, USELESS, TICKET = b"A", b"L", b"U", b"T"
QUESTION = struct.Struct("=cIQQ16sQ")  # what, length of the root's path, device, inode, id, number
ANSWER = struct.Struct("=cI16sQ?")  # what, length of what follows, id, number, whether a check is due
NOTHING, SINCE, ALL = b"N", b"S", b"A"  # nobody follows it; look at everything, from then on it is followed; at these
NAME = struct.Struct("=BH")  # how much of it (below), length
ALONE, WHOLE, DEAF = 0, 1, 2  # only it; with all below; the same, and so every time, because it is not followed
_PATIENCE_S = 0.25


class Mark(Value):
    """An index is as the tree was when the helper, as the follower `id`, had counted to `seq`."""

    id: bytes
    seq: int


class Word(Value):
    """The helper's answer. `paths` is None if everything has to be looked at."""

    mark: Mark
    paths: tuple[tuple[bytes, int], ...] | None


_helper: socket.socket | None = None
_is_check_due = False


def listen(connection: socket.socket | None) -> None:
    """From now on the helper at the other end is asked."""
    global _helper
    _helper = connection


def when_due(check: Callable[[], None]) -> None:
    """Have that run when the caller has got its answer, if the helper is to be checked."""
    global _is_check_due
    if _is_check_due and afterwards.leave(check):
        _is_check_due = False


def ask(root_fd: int, since: Mark | None) -> Word | None:
    """What may have changed since then. To be asked before the tree is looked at; None: nobody knows."""
    if _helper is None:
        return None
    try:
        _send(ASK, root_fd, since or Mark(bytes(16), 0), os.readlink(b"/proc/self/fd/%d" % root_fd))
        kind, length, id, seq, is_due = ANSWER.unpack(_receive(ANSWER.size))
        body = _receive(length)
    except (OSError, struct.error):
        listen(None)  # it hangs or is gone; a late answer must not be taken for the next one
        return None
    if kind == NOTHING:
        return None
    paths = None
    if kind == ALL:
        names, at = [], 0
        while at < len(body):
            how, size = NAME.unpack_from(body, at)
            at += NAME.size
            names.append((body[at : at + size], how))
            at += size
        paths = tuple(names)
    global _is_check_due
    _is_check_due |= is_due
    return Word(Mark(id, seq), paths)


def say_it_lied(root_fd: int, path: bytes) -> None:
    """The helper missed a change of that path; it must not be believed again."""
    if _helper is not None:
        try:
            _send(LIED, root_fd, Mark(bytes(16), 0), path)
        except OSError:
            listen(None)  # it is gone, and what it knew with it


def say_it_is_useless(root_fd: int) -> None:
    """So much of the tree is not followed that looking at everything is as quick."""
    if _helper is not None:
        try:
            _send(USELESS, root_fd, Mark(bytes(16), 0), b"")
        except OSError:
            listen(None)


def leave_ticket(root_fd: int, ticket: bytes) -> None:
    """Give the helper what it needs to answer the next call by itself (`app.promising`)."""
    if _helper is not None:
        try:
            _send(TICKET, root_fd, Mark(bytes(16), 0), ticket)
        except OSError:
            listen(None)


def untold_rows(index: Buffer) -> list[int]:
    """The rows that nobody can tell of: they are looked at every time."""
    # what has several names can be written by one of them that is elsewhere
    return tree.numbers(native.rows_with(index, tree.RACY | tree.NEEDS, b"", True))


def rows_to_look_at(index: Buffer, paths: Iterable[tuple[bytes, int]], *, untold: Sequence[int] | None = None) -> bytes:
    """Numbers of rows for `native.scan`: of these paths, and of what nobody can tell of (`untold`, if known)."""
    wanted = set(untold_rows(index) if untold is None else untold)
    whole: list[range] = []
    for path, how in paths:
        row = native.find(index, path)
        if row >= 0:
            wanted.add(row)
            if how != ALONE:
                whole.append(range(row + 1, _end_of(index, row, path)))
        while path and (row := native.find(index, path := tree.parent(path))) < 0:
            continue
        if row >= 0:
            wanted.add(row)
    if not wanted and not whole:
        return b""
    import array  # 0.2 ms for who works without the helper, and never comes to this

    # ranges may be long: none of their numbers becomes a member of the set
    numbers, at = array.array("I"), 0
    for part in sorted([*whole, *(range(row, row + 1) for row in wanted)], key=lambda part: part.start):
        if part.stop > at:
            numbers.extend(range(max(at, part.start), part.stop))
            at = part.stop
    return numbers.tobytes()


def deaf_rows(index: Buffer, paths: tuple[tuple[bytes, int], ...]) -> int:
    """How many rows are looked at every time because they are not followed."""
    deaf = [(row, path) for path, how in paths if how == DEAF and (row := native.find(index, path)) >= 0]
    return sum(_end_of(index, row, path) - row for row, path in deaf)


def _end_of(index: Buffer, row: int, path: bytes) -> int:
    """The first row after all that is below that directory."""
    low, high = row + 1, tree.count(index)
    below = path + b"/" if path else b""
    while low < high:
        middle = (low + high) // 2
        if native.get(index, middle)[0].startswith(below):
            low = middle + 1
        else:
            high = middle
    return low


def _send(kind: bytes, root_fd: int, mark: Mark, text: bytes) -> None:
    assert _helper is not None
    st = os.fstat(root_fd)
    _helper.settimeout(_PATIENCE_S)
    _helper.sendall(QUESTION.pack(kind, len(text), st.st_dev, st.st_ino, mark.id, mark.seq) + text)


def _receive(size: int) -> bytes:
    assert _helper is not None
    parts = []
    while size:
        part = _helper.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the helper is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
