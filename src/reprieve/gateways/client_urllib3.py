"""urllib3, and so requests: calls pass where a connection of the pool is given one request, each retry anew."""

from __future__ import annotations

import io
from urllib.parse import urlsplit

from reprieve.effects.calls import MOST_KEPT, Call
from reprieve.effects.wire import Answer
from reprieve.errors import Misconfigured
from reprieve.gateways.conversing import Came, Rest, Sip, converse, for_look, is_endless, lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType
    from typing import Any

    from reprieve.app.http_calls import HttpCalls


def patch(urllib3: ModuleType, calls: HttpCalls) -> list[tuple[object, str, object]]:
    """Put us in between; returns what was there, as (object, name, value). Raises Misconfigured for urllib3 1."""
    if int(urllib3.__version__.partition(".")[0]) < 2:
        raise Misconfigured(
            f"calls of urllib3 {urllib3.__version__} can't be recorded", hints=["use urllib3 2: pip install -U urllib3"]
        )
    pool = urllib3.connectionpool.HTTPConnectionPool
    original = pool._make_request

    def read(response: Any) -> Came[Any]:
        sip = Sip()
        connection, response._connection = response._connection, None  # it stays ours until we are done with it
        if not is_endless({"content-type": response.headers.get("Content-Type", "")}):
            sip.take(_chunks(response))
        if sip.is_whole:
            body: Any = io.BytesIO(sip.data)
        else:
            rest = Rest(sip.data, lambda most: response.read(most, decode_content=False), response.close)
            body = io.BufferedReader(rest)
        fresh = urllib3.HTTPResponse(
            body=body,
            headers=response.headers,
            status=response.status,
            version=response.version,
            version_string=response.version_string,
            reason=response.reason,
            preload_content=False,
            decode_content=response.decode_content,
            original_response=response._original_response,
            pool=response._pool,
            connection=connection,
            msg=response.msg,
            retries=response.retries,
            enforce_content_length=False,
            request_url=response._request_url,
        )
        plain = None
        if response.headers.get("Content-Encoding") and sip.is_whole:
            plain = urllib3.HTTPResponse(
                body=io.BytesIO(sip.data), headers=response.headers, status=200, preload_content=False
            ).read(decode_content=True)
        return Came(fresh, sip.answer(response.status, response.headers.items(), plain))

    def _make_request(self: Any, conn: Any, method: str, url: str, **given: Any) -> Any:
        headers = dict(given.get("headers") or {})
        call = Call(method.upper(), _whole(self, url), tuple(_texts(headers)), _body(given.get("body")))
        if calls.is_look(call):
            return original(self, conn, method, url, **given)
        is_preloaded = given.get("preload_content", True)

        def look(target: str) -> Answer:
            parts = urlsplit(target)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            asked = path if not url.startswith("http") else target  # through a proxy a whole URL is asked for
            try:
                response = original(
                    self,
                    conn,
                    "GET",
                    asked,
                    headers=for_look(call.headers),
                    timeout=given.get("timeout"),
                    preload_content=False,
                    decode_content=False,
                )
                sip = Sip()
                sip.take(_chunks(response))
                if not sip.is_whole:
                    conn.close()  # the rest of it is in the way of what comes next
                return sip.answer(response.status, response.headers.items())
            except (urllib3.exceptions.HTTPError, OSError) as e:
                conn.close()
                return lost(e)

        def go(extra: Mapping[str, str]) -> Came[Any]:
            more = {**given, "headers": {**headers, **extra}, "preload_content": False}
            return read(original(self, conn, method, url, **more))

        def replay(answer: Answer) -> Any:
            return urllib3.HTTPResponse(
                body=io.BytesIO(answer.body), headers=dict(answer.headers), status=answer.status, preload_content=False
            )

        response = converse(calls, call, look=look, send=go, replay=replay)
        if is_preloaded:
            response._body = response.read(decode_content=given.get("decode_content", True))
        return response

    pool._make_request = _make_request
    return [(pool, "_make_request", original)]


def _chunks(response: Any) -> Iterator[bytes]:
    while chunk := response.read(65536, decode_content=False):
        yield chunk


def _whole(pool: Any, url: str) -> str:
    if url.startswith(("http://", "https://")):
        return url
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    is_usual = pool.port in (None, {"http": 80, "https": 443}.get(pool.scheme))
    return f"{pool.scheme}://{host}{'' if is_usual else f':{pool.port}'}{url}"


def _texts(headers: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        yield (
            name.decode("latin-1") if isinstance(name, bytes) else str(name),
            value.decode("latin-1") if isinstance(value, bytes) else str(value),
        )


def _body(body: Any) -> bytes | None:
    data = body.encode() if isinstance(body, str) else b"" if body is None else body
    if isinstance(data, (bytes, bytearray, memoryview)) and len(data) <= MOST_KEPT:
        return bytes(data)
    return None
