"""http.client, and so urllib: calls pass where `request` sends and where `getresponse` hears the answer."""

from __future__ import annotations

import io

from reprieve.app.http_calls import Send
from reprieve.effects.calls import MOST_KEPT, Call
from reprieve.effects.wire import Answer, OwnConnection
from reprieve.errors import Repeated
from reprieve.gateways.conversing import Rest, Sip, for_look, is_endless, lost
from reprieve.model.effect import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType
    from typing import Any

    from reprieve.app.http_calls import Exchange, HttpCalls


def patch(client: ModuleType, calls: HttpCalls) -> list[tuple[object, str, object]]:
    """Put us in between; returns what was there, as (object, name, value)."""
    original, hear = client.HTTPConnection.request, client.HTTPConnection.getresponse

    def look(self: Any, call: Call, url: str) -> Answer:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if self._tunnel_host:
            return Answer(0, detail="through a tunnel nothing is asked", is_unsent=True)
        more = {"context": self._context} if hasattr(self, "_context") else {}
        other = type(self)(self.host, self.port, timeout=self.timeout, **more)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            original(other, "GET", target, headers=for_look(call.headers))
            response = hear(other)
            sip = Sip()
            sip.take(_chunks(response))
            return sip.answer(response.status, response.getheaders())
        except (OSError, client.HTTPException) as e:
            return lost(e)
        finally:
            other.close()

    def request(
        self: Any, method: str, url: str, body: Any = None, headers: Any = None, *, encode_chunked: bool = False
    ) -> None:
        headers = dict(headers or {})
        if isinstance(self, OwnConnection):  # an undo is no effect of the program
            original(self, method, url, body, headers, encode_chunked=encode_chunked)
            return
        call = Call(
            method.upper(),
            _whole(self, url),
            tuple((str(name), _text(value)) for name, value in headers.items()),
            _body(body),
        )
        if calls.is_look(call):
            original(self, method, url, body, headers, encode_chunked=encode_chunked)
            return
        talk = calls.exchange(call)
        step = _until_sent(talk, lambda at: look(self, call, at))
        try:
            original(self, method, url, body, {**headers, **step}, encode_chunked=encode_chunked)
        except BaseException as e:
            _tell(talk, lost(e), lambda at: look(self, call, at))
            raise
        self._reprieve = (talk, call)

    def getresponse(self: Any) -> Any:
        talk, call = self.__dict__.pop("_reprieve", (None, None))
        if talk is None:
            return hear(self)
        try:
            response = hear(self)
        except BaseException as e:
            _tell(talk, lost(e), lambda at: look(self, call, at))
            raise
        answer = _sipped(response)
        _tell(talk, answer, lambda at: look(self, call, at))
        return response

    client.HTTPConnection.request = request
    client.HTTPConnection.getresponse = getresponse
    return [(client.HTTPConnection, "request", original), (client.HTTPConnection, "getresponse", hear)]


def _until_sent(talk: Exchange, look: Any) -> Mapping[str, str]:
    """Ask until it may be sent; returns the headers to add."""
    try:
        step = next(talk)
        while not isinstance(step, Send):
            step = talk.send(look(step.url))
    except StopIteration as end:
        id = end.value.header("Reprieve-Replayed")
        raise Repeated(
            f"effect {id} survived a rollback and is asked for again; http.client can't be given its recorded answer",
            effect=id,
            state=DONE,
        ) from None
    return dict(step.headers)


def _tell(talk: Exchange, answer: Answer, look: Any) -> None:
    try:
        step = talk.send(answer)
        while not isinstance(step, Send):
            step = talk.send(look(step.url))
    except StopIteration:
        return  # all is written


def _sipped(response: Any) -> Answer:
    """Read the beginning of the body and put it back."""
    sip = Sip()
    if not is_endless({"content-type": response.getheader("Content-Type", "")}):
        sip.take(_chunks(response))
    if sip.is_whole:
        response.fp, response.length = io.BytesIO(sip.data), len(sip.data)
    else:
        inner: Any = response.__class__.__new__(response.__class__)
        inner.__dict__.update(response.__dict__)
        response.fp, response.length = io.BufferedReader(Rest(sip.data, inner.read1, inner.close)), None
    response.chunked = False
    return sip.answer(response.status, response.getheaders())


def _chunks(response: Any) -> Iterator[bytes]:
    while chunk := response.read1(65536):
        yield chunk


def _whole(connection: Any, url: str) -> str:
    if url.startswith(("http://", "https://")):
        return url
    is_secure = hasattr(connection, "_context")
    host = connection._tunnel_host or connection.host
    port = connection._tunnel_port if connection._tunnel_host else connection.port
    name = f"[{host}]" if ":" in host else host
    usual = 443 if is_secure else 80
    return f"{'https' if is_secure else 'http'}://{name}{'' if port in (None, usual) else f':{port}'}{url}"


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _body(body: Any) -> bytes | None:
    data = body.encode("latin-1", "replace") if isinstance(body, str) else b"" if body is None else body
    if isinstance(data, (bytes, bytearray)) and len(data) <= MOST_KEPT:
        return bytes(data)
    return None
