"""Talk to an MCP server once: start it or post to it, shake hands, call one tool. Both eras of the protocol.

What `effects.mcp` needs to undo a call, and what the gateway needs to reach a server by HTTP. No SDK: a rollback must
work where only the core is installed.
"""

from __future__ import annotations

import json

from reprieve.errors import ReprieveError
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from http.client import HTTPConnection, HTTPResponse
    from queue import Queue

    Json = dict[str, object]

LEGACY, MODERN = "2025-06-18", "2026-07-28"  # what we say; a server may answer with an older one
META = "io.modelcontextprotocol/"
MOST = 64 << 20  # bytes of one message
_SHOWN = 100  # characters of a server's own words in ours
# answers that mean that the tool was not run; with any other error it may have been. Wrong parameters (-32602) is not
# among them: SDKs give it for a result that is wrong as well, and tools raise it from the middle of their work
_NOT_RUN_CODES = (-32700, -32600, -32601)  # JSON-RPC: not read, no request, no such method
_TRANSPORT_CODES = range(-32099, -31999)  # what a server's HTTP part says of a message that it did not hand on
NOT_RUN_STATUSES = (400, 401, 403, 404, 405, 413, 415, 421, 429)
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Unanswered(ReprieveError):
    """A server did not answer in a way that tells what happened. `is_sent`: the call may have reached it."""

    code = "unanswered"

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(message)
        self.is_sent = is_sent


class Answer(Value):
    """A tool's answer: its result, or the error of the protocol. `is_refused`: an error that says it was not run."""

    result: Json | None = None
    error: str = ""
    is_refused: bool = False

    @property
    def is_error(self) -> bool:
        return self.result is None or self.result.get("isError") is True

    @property
    def is_asking(self) -> bool:
        """Whether the server wants to know something first; then the same call is made again with the answer."""
        return self.result is not None and self.result.get("resultType") == "input_required"

    @property
    def unfinished(self) -> str:
        """Why the call is not done though it was answered; "" if it is done or failed."""
        result = self.result or {}
        task = result.get("task")
        if isinstance(task, dict) and "content" not in result:
            return f"it goes on as the task {ascii(task.get('taskId'))[:_SHOWN]}; its end was not seen"
        kind = result.get("resultType", "complete")
        if self.is_asking:
            return "the server asked back before it does it"
        return "" if kind == "complete" else f"the server's answer is not complete ({ascii(kind)[:_SHOWN]})"

    def text(self) -> str:
        """What it says, for people."""
        if self.result is None:
            return self.error
        content = self.result.get("content")
        parts = [
            str(part.get("text", ""))
            for part in (content if isinstance(content, list) else ())
            if isinstance(part, dict)
        ]
        return " ".join(parts).strip()


def call_by_stdio(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    tool: str,
    arguments: Mapping[str, object],
    is_modern: bool = False,
    timeout_s: float = 60.0,
) -> Answer:
    """Start a server, call one tool, end it. Raises OSError if it can't be started, Unanswered."""
    import os
    import queue
    import signal
    import subprocess
    import threading
    import time

    child = subprocess.Popen(
        list(argv), cwd=cwd or None, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    lines: Queue[bytes] = queue.Queue()
    assert child.stdout is not None
    reader = threading.Thread(target=_read_lines, args=(child, lines), daemon=True)
    reader.start()
    until = time.monotonic() + timeout_s
    try:
        return _converse(child, lines, until, tool, arguments, is_modern)
    finally:
        assert child.stdin is not None
        try:
            child.stdin.close()
        except OSError:
            pass  # it is gone already
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        child.wait()
        reader.join(2)
        child.stdout.close()


def _read_lines(child: subprocess.Popen[bytes], lines: Queue[bytes]) -> None:
    assert child.stdout is not None
    while line := child.stdout.readline(MOST):
        lines.put(line)
    lines.put(b"")


def _converse(
    child: subprocess.Popen[bytes],
    lines: Queue[bytes],
    until: float,
    tool: str,
    arguments: Mapping[str, object],
    is_modern: bool,
) -> Answer:
    import queue
    import time

    is_sent = False

    def send(message: Json) -> None:
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(message).encode() + b"\n")
            child.stdin.flush()
        except OSError as e:
            raise Unanswered("the server ended", is_sent=is_sent) from e

    def wait(id: int) -> Json:
        while True:
            try:
                line = lines.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise Unanswered("the server did not answer in time", is_sent=is_sent) from None
            if not line:
                raise Unanswered("the server ended without an answer", is_sent=is_sent)
            message = parsed(line)
            if message is not None and message.get("id") == id and "method" not in message:
                return message
            if message is not None and "method" in message and "id" in message:
                # nobody is here to answer what it asks the client
                send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "not here"}})

    if not is_modern:
        send(request(1, "initialize", hello()))
        started = wait(1)
        if "error" in started:
            raise Unanswered(f"the server refused to begin: {_error(started)}", is_sent=False)
        send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    is_sent = True
    send(tool_call(2, tool, arguments, is_modern=is_modern))
    return answer_of(wait(2))


def call_by_http(
    url: str,
    headers: Mapping[str, str],
    *,
    tool: str,
    arguments: Mapping[str, object],
    is_modern: bool = False,
    timeout_s: float = 60.0,
) -> Answer:
    """Call one tool of a server at a URL. Raises Unanswered."""
    extra = dict(headers)
    if not is_modern:
        try:
            extra |= _handshake(url, extra, timeout_s)
        except Unanswered as e:
            raise Unanswered(e.message, is_sent=False) from e
    with post(url, extra, tool_call(2, tool, arguments, is_modern=is_modern), timeout_s=timeout_s) as reply:
        for message, _ in reply.messages():
            if message.get("id") == 2 and "method" not in message:
                return answer_of(message)
    raise Unanswered("the server closed the connection without an answer", is_sent=True)


def _handshake(url: str, headers: Mapping[str, str], timeout_s: float) -> dict[str, str]:
    """Headers that go with every later message. Raises Unanswered."""
    started: Json = {}
    with post(url, headers, request(1, "initialize", hello()), timeout_s=timeout_s) as reply:
        session = reply.header("Mcp-Session-Id")
        for message, _ in reply.messages():
            if message.get("id") == 1:
                started = message
    result = started.get("result")
    if not isinstance(result, dict):
        raise Unanswered(f"the server refused to begin: {_error(started)}", is_sent=False)
    found = {"Mcp-Session-Id": session} if session else {}
    found["MCP-Protocol-Version"] = str(result.get("protocolVersion", LEGACY))
    note: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    with post(url, {**headers, **found}, note, timeout_s=timeout_s):
        return found


# -- messages


def request(id: object, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def hello() -> Json:
    return {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client_info()}


def client_info() -> Json:
    from reprieve.version import VERSION

    return {"name": "reprieve", "version": VERSION}


def tool_call(id: object, tool: str, arguments: Mapping[str, object], *, is_modern: bool) -> Json:
    params: Json = {"name": tool, "arguments": dict(arguments)}
    if is_modern:
        params["_meta"] = {
            f"{META}protocolVersion": MODERN,
            f"{META}clientInfo": client_info(),
            f"{META}clientCapabilities": {},
        }
    return request(id, "tools/call", params)


def answer_of(message: Mapping[str, object], *, is_refused: bool = False) -> Answer:
    """`is_refused`: the status that came with it says that the tool was not run; the error's own number may doubt it.

    Some servers make the status out of the number: 400 with -32602 tells no more than -32602.
    """
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict):
        return Answer(result)
    code = error.get("code") if isinstance(error, dict) else None
    is_not_run = isinstance(code, int) and (code in _NOT_RUN_CODES or (is_refused and code in _TRANSPORT_CODES))
    return Answer(None, _error(message), is_not_run)


def _error(message: Mapping[str, object]) -> str:
    error = message.get("error")
    return str(error.get("message", "no reason")) if isinstance(error, dict) else "no reason"


def parsed(line: bytes | str) -> Json | None:
    """The message in a line; None if it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


# -- HTTP


def headers_for(message: Mapping[str, object], schema: object = None) -> dict[str, str]:
    """Headers that the modern era wants to find the message's own words in; none for the era before it."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
    if not isinstance(version, str) or not isinstance(params, dict):
        return {}
    method = str(message.get("method", ""))
    found = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    name = params.get(_NAMED.get(method, ""))
    if isinstance(name, str):
        found["Mcp-Name"] = _header_value(name)
    if method == "tools/call":
        for token, value in _mirrored(schema, params.get("arguments")):
            found[f"Mcp-Param-{token}"] = _header_value(value)
    return found


def _mirrored(schema: object, values: object) -> Iterator[tuple[str, str]]:
    """Arguments whose schema asks for a header of their own."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(values, dict):
        return
    for name, inner in properties.items():
        value = values.get(name)
        token = inner.get("x-mcp-header") if isinstance(inner, dict) else None
        if isinstance(token, str) and isinstance(value, (str, int, float)):
            yield token, str(value).lower() if isinstance(value, bool) else str(value)
        yield from _mirrored(inner, value)


def _header_value(text: str) -> str:
    """As it is where a header can hold it, else in the protocol's own wrapping."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    if is_plain:
        return text
    from base64 import b64encode

    return f"=?base64?{b64encode(text.encode()).decode()}?="


class Reply:
    """An answer over HTTP, read as it comes; a context manager."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self.connection, self.response = connection, response
        self.status = response.status
        self.last_id = ""  # of the newest event, by which a stream that broke goes on
        self.retry_s: float | None = None  # what the server wants to be left alone for before that

    @classmethod
    def of(cls, connection: HTTPConnection) -> Reply:
        """Wait for the head of the answer. Raises Unanswered."""
        from http.client import HTTPException

        try:
            return cls(connection, connection.getresponse())
        except (OSError, HTTPException) as e:
            connection.close()
            raise Unanswered(f"{connection.host} did not answer: {e}", is_sent=True) from e

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def header(self, name: str) -> str:
        return self.response.getheader(name) or ""

    def messages(self) -> Iterator[tuple[Json, str]]:
        """Each message, and its text in one line. Raises Unanswered."""
        from http.client import HTTPException

        if self.status >= 300 and "json" not in self.header("Content-Type").lower():
            said = f"the server answered {self.status} {self.response.reason}"
            raise Unanswered(said, is_sent=self.status not in NOT_RUN_STATUSES)
        try:
            for text in self._texts():
                yield parsed(text) or {}, text
        except (OSError, HTTPException, ValueError, AttributeError) as e:
            # AttributeError: http.client's own, where another thread hung up
            raise Unanswered(f"the connection broke: {e}", is_sent=True) from e

    def _texts(self) -> Iterator[str]:
        if "text/event-stream" in self.header("Content-Type").lower():
            data: list[str] = []
            while raw := self.response.readline(MOST):
                line = raw.decode("utf-8").rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif line.startswith("id:") and line.isascii() and line.isprintable():  # what a header can hold
                    self.last_id = line[3:].strip()
                elif line.startswith("retry:") and line[6:].strip().isdecimal():
                    self.retry_s = int(line[6:].strip()[:9]) / 1000
                elif not line and data:
                    if any(data):
                        yield _one_line("\n".join(data))
                    data = []
            return
        body = self.response.read(MOST).decode("utf-8")
        if body.strip():
            yield _one_line(body)


def _one_line(text: str) -> str:
    text = text.strip()
    return json.dumps(json.loads(text)) if "\n" in text or "\r" in text else text


def post(url: str, headers: Mapping[str, str], message: Mapping[str, object], *, timeout_s: float) -> Reply:
    """Post one message. Raises Unanswered."""
    body = json.dumps(message).encode()
    return exchange("POST", url, {**headers_for(message), **headers}, body, timeout_s=timeout_s)


def exchange(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeout_s: float | None
) -> Reply:
    """Send one request and wait for the head of its answer. Raises Unanswered."""
    return Reply.of(send(method, url, headers, body, timeout_s=timeout_s))


def send(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeout_s: float | None
) -> HTTPConnection:
    """Send one request. Redirects are not followed: a credential goes where a person sent it. Raises Unanswered."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    accept = "text/event-stream" if method == "GET" else "application/json, text/event-stream"
    try:
        connection.connect()
    except OSError as e:
        raise Unanswered(f"{parts.netloc} can't be reached: {e}", is_sent=False) from e
    kinds = {"Accept": accept, **({"Content-Type": "application/json"} if body else {})}
    try:
        connection.request(method, path, body, {**kinds, **headers})
    except ValueError as e:  # words of a message or of the server that no header can hold; nothing left yet
        connection.close()
        raise Unanswered(f"it can't be sent: {e}", is_sent=False) from e
    except (OSError, HTTPException) as e:
        connection.close()
        raise Unanswered(f"{parts.netloc} did not take it: {e}", is_sent=True) from e
    return connection
