"""httpx: calls pass where its transports send, after redirects and authentication were settled by the client."""

from __future__ import annotations

from reprieve.effects.calls import MOST_KEPT, Call
from reprieve.effects.wire import Answer
from reprieve.gateways.conversing import Came, Sip, converse, converse_async, for_look, is_endless, lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from types import ModuleType
    from typing import Any

    from reprieve.app.http_calls import HttpCalls


def patch(httpx: ModuleType, calls: HttpCalls) -> list[tuple[object, str, object]]:
    """Put us in between; returns what was there, as (object, name, value)."""
    send, send_async = httpx.HTTPTransport.handle_request, httpx.AsyncHTTPTransport.handle_async_request

    class Rest(httpx.SyncByteStream):  # type: ignore[name-defined,misc]
        """What was read, then the rest."""

        def __init__(self, data: bytes, stream: Any, rest: Iterator[bytes]) -> None:
            self._data, self._stream, self._rest = data, stream, rest

        def __iter__(self) -> Iterator[bytes]:
            yield self._data
            yield from self._rest

        def close(self) -> None:
            self._stream.close()

    class AsyncRest(httpx.AsyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, data: bytes, stream: Any, rest: AsyncIterator[bytes]) -> None:
            self._data, self._stream, self._rest = data, stream, rest

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield self._data
            async for chunk in self._rest:
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    def answer_of(response: Any, sip: Sip) -> Answer:
        decoded = None
        if response.headers.get("content-encoding") and sip.is_whole:
            try:
                decoded = httpx.Response(200, headers=response.headers, content=sip.data).content
            except httpx.DecodingError:
                decoded = b""
        return sip.answer(response.status_code, response.headers.multi_items(), decoded)

    def read(response: Any) -> Came[Any]:
        sip = Sip()
        if is_endless(response.headers):
            return Came(response, sip.answer(response.status_code, response.headers.multi_items()))
        rest = iter(response.stream)
        sip.take(rest)
        response.stream = Rest(sip.data, response.stream, rest)
        return Came(response, answer_of(response, sip))

    async def read_async(response: Any) -> Came[Any]:
        sip = Sip()
        if is_endless(response.headers):
            return Came(response, sip.answer(response.status_code, response.headers.multi_items()))
        rest = response.stream.__aiter__()
        async for chunk in rest:
            sip.data += chunk
            if sip.is_enough:
                break
        else:
            sip.is_whole = True
        response.stream = AsyncRest(sip.data, response.stream, rest)
        return Came(response, answer_of(response, sip))

    def replay(answer: Answer) -> Any:
        return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)

    def question(request: Any, url: str) -> Any:
        return httpx.Request("GET", url, headers=for_look(request.headers.multi_items()), extensions=request.extensions)

    def handle_request(self: Any, request: Any) -> Any:
        call = call_of(request, httpx.ByteStream)
        if calls.is_look(call):
            return send(self, request)

        def look(url: str) -> Answer:
            try:
                response = send(self, question(request, url))
                try:
                    return read(response).answer
                finally:
                    response.close()
            except httpx.TransportError as e:
                return lost(e)

        def go(headers: Mapping[str, str]) -> Came[Any]:
            request.headers.update(headers)
            return read(send(self, request))

        return converse(calls, call, look=look, send=go, replay=replay)

    async def handle_async_request(self: Any, request: Any) -> Any:
        call = call_of(request, httpx.ByteStream)
        if calls.is_look(call):
            return await send_async(self, request)

        async def look(url: str) -> Answer:
            try:
                response = await send_async(self, question(request, url))
                try:
                    return (await read_async(response)).answer
                finally:
                    await response.aclose()
            except httpx.TransportError as e:
                return lost(e)

        async def go(headers: Mapping[str, str]) -> Came[Any]:
            request.headers.update(headers)
            return await read_async(await send_async(self, request))

        return await converse_async(calls, call, look=look, send=go, replay=replay)

    httpx.HTTPTransport.handle_request = handle_request
    httpx.AsyncHTTPTransport.handle_async_request = handle_async_request
    return [
        (httpx.HTTPTransport, "handle_request", send),
        (httpx.AsyncHTTPTransport, "handle_async_request", send_async),
    ]


def call_of(request: Any, whole: Callable[..., Any]) -> Call:
    """An httpx request as a call; a body that comes bit by bit is not looked into."""
    body: bytes | None = None
    if isinstance(request.stream, whole):  # type: ignore[arg-type]
        data = b"".join(request.stream)
        body = data if len(data) <= MOST_KEPT else None
    return Call(request.method.upper(), str(request.url), tuple(request.headers.multi_items()), body)
