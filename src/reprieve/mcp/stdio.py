"""Standard input and output for a server: kept from child processes, without a thread, with an end to a message's size.

Not the SDK's own: a thread that waits in `read` cannot be stopped, so that a signal would not end the server; and two
threads' work for each line that is written is a third of what a call costs beside its work.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

LONGEST = 4 << 20  # bytes of one message, as over HTTP
_PIECE = 1 << 16


class Lines:
    """Lines of UTF-8. One that is too long is read away and becomes a line that is no message: an error, no crash."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begun: list[bytes] = []  # pieces of a line that has no end yet
        self._size = 0
        self._ready: list[bytes] = []  # whole lines, the next one last
        self._is_over = False

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            self._take(await self._piece())
        return self._ready.pop().decode("utf-8", "replace")

    async def _piece(self) -> bytes:
        try:
            await anyio.wait_readable(self._fd)
        except PermissionError:
            pass  # a file is always ready, and says so in this way
        return os.read(self._fd, _PIECE)

    def _take(self, piece: bytes) -> None:
        if not piece:
            self._is_over = True
            return
        first, *rest = piece.split(b"\n")
        found = []
        for part in (first, *rest[:-1]) if rest else ():
            found.append(self._whole(part))
        self._begin(rest[-1] if rest else first)
        self._ready = found[::-1]

    def _begin(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LONGEST:
            self._begun.append(part)
        else:
            self._begun = []  # what is too long is not kept, however much of it comes

    def _whole(self, part: bytes) -> bytes:
        self._begin(part)
        line = b"".join(self._begun) if self._size <= LONGEST else b'"a message that is too long"'
        self._begun, self._size = [], 0
        return line + b"\n"


class Writer:
    """Text to a descriptor, without ever waiting in `write`: the client may be slow, and the others' calls go on.

    The descriptor is not made non-blocking, because others may share it. What a pipe takes as a whole when it has room
    at all is PIPE_BUF bytes (POSIX); a socket or terminal that is ready takes as much.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)

    async def write(self, text: str) -> None:
        rest = memoryview(text.encode())
        while rest:
            if not self._ready.poll(0):
                await anyio.wait_writable(self._fd)
            rest = rest[os.write(self._fd, rest[: select.PIPE_BUF]) :]

    async def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def own_stdout() -> Iterator[Writer]:
    """Standard output on a descriptor of our own; what anybody else prints from now on goes to standard error."""
    private = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
    try:
        yield Writer(private)
    finally:
        os.dup2(private, 1)
        os.close(private)


@contextmanager
def own_stdin() -> Iterator[Lines]:
    """Standard input on a descriptor of our own; who reads descriptor 0 from now on finds its end."""
    private = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield Lines(private)
    finally:
        os.close(private)
