"""Hold the conversation between the recorder and a client: ask what it wants asked, send what it lets pass."""

from __future__ import annotations

import io
import time

from reprieve.app.http_calls import Send
from reprieve.effects.calls import MOST_KEPT
from reprieve.effects.wire import Answer
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, Generic, TypeVar

    from reprieve.app.http_calls import HttpCalls
    from reprieve.effects.calls import Call

    R = TypeVar("R")

    class Came(Value, Generic[R]):
        """A client's own response, and what we read of it."""

        response: R
        answer: Answer

else:

    class Came(Value):
        """A client's own response, and what we read of it."""

        response: object
        answer: Answer


# errors of clients that mean: no byte of the request has left
_UNSENT = frozenset(
    ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL", "LocalProtocolError",
     "NewConnectionError", "ConnectTimeoutError", "NameResolutionError", "LocationParseError", "ClosedPoolError",
     "ClientConnectorError", "ConnectionTimeoutError", "ConnectionRefusedError", "gaierror")
)  # fmt: skip
WAIT_S = 20.0  # for the body of an answer; what comes later is passed on and not looked into


def converse(
    calls: HttpCalls,
    call: Call,
    *,
    look: Callable[[str], Answer],
    send: Callable[[Mapping[str, str]], Came[R]],
    replay: Callable[[Answer], R],
) -> R:
    """Send a call that may have an effect. `look` asks with the caller's own client and rights and never raises."""

    async def looked(url: str) -> Answer:
        return look(url)

    async def sent(headers: Mapping[str, str]) -> Came[R]:
        return send(headers)

    # nothing in it waits, so it runs to its end at once
    coroutine = converse_async(calls, call, look=looked, send=sent, replay=replay)
    try:
        coroutine.send(None)
    except StopIteration as end:
        response: R = end.value
        return response
    raise AssertionError("a client that is not awaited had to be waited for")


async def converse_async(
    calls: HttpCalls,
    call: Call,
    *,
    look: Callable[[str], Awaitable[Answer]],
    send: Callable[[Mapping[str, str]], Awaitable[Came[R]]],
    replay: Callable[[Answer], R],
) -> R:
    """The same for a client that is awaited."""
    talk = calls.exchange(call)
    came: Came[R] | None = None
    error: BaseException | None = None
    try:
        step = next(talk)
        while True:
            if isinstance(step, Send):
                try:
                    came = await send(dict(step.headers))
                    answer = came.answer
                except BaseException as e:  # noqa: BLE001 - noted, then raised again
                    error, answer = e, lost(e)
            else:
                answer = await look(step.url)
            step = talk.send(answer)
    except StopIteration as end:
        return _end(came, error, end.value, replay)
    finally:
        talk.close()


def _end(
    came: Came[R] | None, error: BaseException | None, replayed: Answer | None, replay: Callable[[Answer], R]
) -> R:
    if error is not None:
        raise error
    if came is not None:
        return came.response
    assert replayed is not None
    return replay(replayed)


def lost(error: BaseException) -> Answer:
    """What is known when a client raised instead of answering."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Answer(0, detail=text[:300], is_unsent=bool(names & _UNSENT))


class Sip:
    """Reads the beginning of a body, in size and time; the rest stays where it is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until = clock, clock() + WAIT_S
        self.data = b""
        self.is_whole = False

    @property
    def is_enough(self) -> bool:
        return len(self.data) > MOST_KEPT or self._clock() >= self._until

    def take(self, chunks: Iterable[bytes]) -> None:
        """Read until it ends or is enough."""
        for chunk in chunks:
            self.data += chunk
            if self.is_enough:
                return
        self.is_whole = True

    def answer(self, status: int, headers: Iterable[tuple[str, str]], data: bytes | None = None) -> Answer:
        detail = "" if self.is_whole else f"longer than {MOST_KEPT:,} bytes, or it took longer than {WAIT_S:g} s"
        return Answer(status, tuple(headers), self.data if data is None else data, detail)


class Rest(io.RawIOBase):
    """What was read of a body, then what `read` gives."""

    def __init__(self, data: bytes, read: Callable[[int], bytes], close: Callable[[], None]) -> None:
        self._data, self._read, self._close = data, read, close

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._data:
            self._data = self._read(len(buffer))
        some = self._data[: len(buffer)]
        buffer[: len(some)] = some
        self._data = self._data[len(some) :]
        return len(some)

    def close(self) -> None:
        self._close()
        super().close()


def is_endless(headers: Mapping[str, str]) -> bool:
    """A stream of events has no end that one could wait for."""
    return headers.get("content-type", "").startswith(
        ("text/event-stream", "application/x-ndjson", "multipart/x-mixed")
    )


def for_look(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of a call for a look with the same rights: without what belongs to its body or its conditions."""
    left = ("content-", "transfer-encoding", "if-", "idempotency-key", "expect", "range", "host", "accept-encoding")
    kept = {name: value for name, value in headers if not name.lower().startswith(left)}
    return {**kept, "Accept-Encoding": "identity"}
