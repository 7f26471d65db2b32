"""aiohttp: calls pass in a middleware of our own behind all others, once for each hop of a redirect."""

from __future__ import annotations

from reprieve.effects.calls import MOST_KEPT, Call
from reprieve.effects.wire import Answer
from reprieve.errors import Misconfigured, Repeated
from reprieve.gateways.conversing import Came, Sip, converse_async, for_look, is_endless, lost
from reprieve.model.effect import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

    from reprieve.app.http_calls import HttpCalls


def patch(aiohttp: ModuleType, calls: HttpCalls) -> list[tuple[object, str, object]]:
    """Put us in between; returns what was there, as (object, name, value). Raises Misconfigured for aiohttp < 3.12."""
    if not hasattr(aiohttp, "ClientMiddlewareType"):
        raise Misconfigured(
            f"calls of aiohttp {aiohttp.__version__} can't be recorded",
            hints=["use aiohttp 3.12 or later: pip install -U aiohttp"],
        )
    original = aiohttp.ClientSession._request

    async def read(response: Any) -> Came[Any]:
        headers = response.headers
        sip = Sip()
        length = headers.get("Content-Length", "")
        is_short = length.isdecimal() and int(length) <= MOST_KEPT
        if response.method == "HEAD" or is_endless({"content-type": headers.get("Content-Type", "")}):
            return Came(response, sip.answer(response.status, headers.items()))
        if not is_short and length:
            return Came(response, sip.answer(response.status, headers.items()))
        while not sip.is_enough:
            chunk = await response.content.readany()
            if not chunk:
                sip.is_whole = True
                break
            sip.data += chunk
        _put_back(response, sip)
        return Came(response, sip.answer(response.status, headers.items()))

    async def _request(self: Any, method: str, url: Any, **given: Any) -> Any:
        async def pass_on(request: Any, handler: Any) -> Any:
            call = Call(
                request.method.upper(),
                str(request.url),
                tuple((str(k), str(v)) for k, v in request.headers.items()),
                _body(request.body),
            )
            if calls.is_look(call):
                return await handler(request)

            async def look(target: str) -> Answer:
                try:
                    response = await original(
                        self,
                        "GET",
                        target,
                        headers=for_look(call.headers),
                        allow_redirects=False,
                        middlewares=(),
                        **{name: given[name] for name in ("ssl", "proxy", "proxy_auth", "timeout") if name in given},
                    )
                    try:
                        return (await read(response)).answer
                    finally:
                        response.release()
                except (aiohttp.ClientError, OSError, TimeoutError) as e:
                    return lost(e)

            async def go(headers: Mapping[str, str]) -> Came[Any]:
                request.headers.update(headers)
                return await read(await handler(request))

            return await converse_async(calls, call, look=look, send=go, replay=_replayed)

        others = given.pop("middlewares", None)
        behind = self._middlewares if others is None else others
        return await original(self, method, url, middlewares=(*behind, pass_on), **given)

    aiohttp.ClientSession._request = _request
    return [(aiohttp.ClientSession, "_request", original)]


def _put_back(response: Any, sip: Sip) -> None:
    """Let the caller read what we have read."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there is no other way to do it yet
        response.content.unread_data(sip.data)


def _body(body: Any) -> bytes | None:
    data = getattr(body, "_value", body)
    if isinstance(data, (bytes, bytearray)) and len(data) <= MOST_KEPT:
        return bytes(data)
    return b"" if data is None else None


def _replayed(answer: Answer) -> Any:
    id = answer.header("Reprieve-Replayed")
    raise Repeated(
        f"effect {id} survived a rollback and is asked for again; aiohttp can't be given its recorded answer",
        effect=id,
        state=DONE,
    )
