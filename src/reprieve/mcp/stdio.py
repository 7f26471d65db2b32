"""Standard input and output for a server: kept from child processes, without a thread, with an end to a message's size.

Not the SDK's own: a thread that waits in `read` cannot be stopped, so that a signal would not end the server; and its
threads, tasks and queues for each line are a third of what a call costs beside its work.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

LONGEST = 4 << 20  # bytes of one message, as over HTTP
_PIECE = 1 << 16
_TOO_LONG = "a message that is too long"
_HALF = re.compile("[\ud800-\udfff]")
_PATIENCE_S = 5.0  # with a client that closed our input and does not read; the SDK's own sends SIGTERM after 2


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
        line = b"".join(self._begun) if self._size <= LONGEST else json.dumps(_TOO_LONG).encode()
        self._begun, self._size = [], 0
        return line + b"\n"


class Outlet:
    """Text to a descriptor, without ever waiting in `write`: the client may be slow, and the others' calls go on.

    The descriptor is not made non-blocking, because others may share it. What a pipe takes as a whole when it has room
    at all is PIPE_BUF bytes (POSIX); a socket that is ready takes as much. A terminal is ready when it takes one byte,
    so a slow one does keep the server waiting (0.4 s were seen): there a person types, and no client is at work. Who
    gives up waiting tears no line: what was taken is written to its end.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)
        self._rest: deque[memoryview] = deque()
        self._is_empty: asyncio.Event | None = None  # while the client is behind
        self._error: OSError | None = None

    async def write(self, text: str) -> None:
        """Returns when it is written. Raises BrokenResourceError if nobody reads any more."""
        self._rest.append(memoryview(text.encode()))
        if self._is_empty is None:
            self._drain()
        if self._rest and self._error is None:
            if self._is_empty is None:
                self._is_empty = asyncio.Event()
                asyncio.get_running_loop().add_writer(self._fd, self._drain)
            await self._is_empty.wait()
        if self._error is not None:
            raise anyio.BrokenResourceError from self._error

    async def finish(self) -> None:
        """Write what was taken to its end, unless the client leaves it unread for too long. The last thing to call."""
        if self._is_empty is None:
            return
        try:
            with anyio.move_on_after(_PATIENCE_S, shield=True):
                await self._is_empty.wait()
        finally:
            asyncio.get_running_loop().remove_writer(self._fd)

    def _drain(self) -> None:
        """Write as much as there is room for."""
        try:
            while self._rest and self._ready.poll(0):
                first = self._rest[0]
                if rest := first[os.write(self._fd, first[: select.PIPE_BUF]) :]:
                    self._rest[0] = rest
                else:
                    self._rest.popleft()
        except OSError as error:
            self._error = error
            self._rest.clear()
        if not self._rest and self._is_empty is not None:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._is_empty.set()
            self._is_empty = None


class Requests:
    """What the client sends, as the SDK reads it.

    A line that is no message is answered here: the SDK would pass it over, and the client would wait for ever.
    """

    def __init__(self, lines: Lines, outlet: Outlet) -> None:
        self._lines, self._outlet = lines, outlet

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            line = await anext(self._lines)
            try:
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError:
                found = _read_again(line)
            if isinstance(found, SessionMessage):
                return found
            if found is not None:
                await self._outlet.write(found.model_dump_json(by_alias=True, exclude_unset=True) + "\n")

    def __aiter__(self) -> Requests:
        return self

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """The descriptor is its owner's."""

    async def __aenter__(self) -> Requests:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def _read_again(line: str) -> SessionMessage | types.JSONRPCError | None:
    """A message that the SDK does not read, or what the client is told about it; None: nobody waits for an answer.

    Half a surrogate pair, as a model sends it that cut an emoji in two, is no text to the SDK. Here it becomes U+FFFD.
    """
    if not line.strip():
        return None
    try:
        said = _whole(json.loads(line))
    except (ValueError, RecursionError):
        return _refused(types.PARSE_ERROR, "the line is no JSON", None)
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_python(said, by_name=False))
    except ValueError:
        if said == _TOO_LONG:
            return _refused(types.INVALID_REQUEST, f"the message is longer than {LONGEST:,} bytes", None)
        is_call = isinstance(said, dict) and "method" in said
        if is_call and "id" not in said:
            return None  # a notification is never answered
        # the id of an answer is one of ours, and would mean another call to the client
        id = said["id"] if is_call and type(said["id"]) in (str, int) else None
        return _refused(types.INVALID_REQUEST, "this is no message of JSON-RPC 2.0", id)


def _refused(code: int, message: str, id: str | int | None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=message))


def _whole(value: Any) -> Any:
    """The same without halves of surrogate pairs; whole pairs are characters by now."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


class Answers:
    """What the client gets, as the SDK writes it: one message, one line."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet: Outlet | None = outlet

    async def send(self, item: SessionMessage, /) -> None:
        if self._outlet is None:
            raise anyio.ClosedResourceError
        await self._outlet.write(item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n")

    async def aclose(self) -> None:
        """Nothing more is sent."""
        self._outlet = None

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@contextmanager
def own_stdout() -> Iterator[Outlet]:
    """Standard output on a descriptor of our own; what anybody else prints from now on goes to standard error."""
    private = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
    try:
        yield Outlet(private)
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
