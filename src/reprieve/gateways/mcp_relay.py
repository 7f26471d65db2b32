"""Run an MCP gateway: a client on our own standard streams, a server that we start or that is at a URL.

Threads only read and write; one, the caller's, does everything else: it alone opens the workspace, in the order in
which things arrive.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from reprieve.effects import credentials
from reprieve.effects.mcp_client import MOST, NOT_RUN_STATUSES, Reply, Unanswered, exchange, headers_for, parsed, send
from reprieve.files.processes import is_group_alive
from reprieve.gateways.mcp_session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPConnection
    from typing import IO, Protocol

    from reprieve.app.mcp_calls import Server, ToolCalls
    from reprieve.model.reporter import Reporter

    Inbox = queue.SimpleQueue[tuple[str, bytes, object]]

    class Upstream(Protocol):
        def send(self, line: bytes) -> None:
            """Never waits."""

        def close(self) -> int:
            """The client is gone: let the server end. Its exit code."""


CLIENT, SERVER, CLIENT_GONE, SERVER_GONE, LOST = "client", "server", "client gone", "server gone", "lost"
WARNING = "warning"
# that a server has to end by itself, and then once more after SIGTERM; clients wait for two seconds and then end us
_GRACE_S = 0.7
_READ_S = 0.3  # for the last words of one that is gone
_DELETE_S = 1.0
_LOOK_S = 0.01
# when to open a server's own stream again: twice as long after each time that nothing came, or as the server says
_AGAIN_S, _SHORTEST_S, _LONGEST_S = 1.0, 0.1, 60.0
_TRIES = 8  # that fail one after the other: some two minutes


def relay(calls: ToolCalls, server: Server, *, name: str, reporter: Reporter, is_off: bool = False) -> int:
    """Pass messages on until one side is gone. The server's exit code."""
    inbox: Inbox = queue.SimpleQueue()
    out = _Writer(sys.stdout.buffer)
    upstream: Upstream = _Http(server, inbox) if server.url else _Stdio(server, inbox)
    session = Session(
        calls, name=name, to_server=upstream.send, to_client=out.send, reporter=reporter, clock=time.monotonic,
        is_off=is_off,
    )  # fmt: skip
    if isinstance(upstream, _Http):
        upstream.schema_of = lambda tool: session.tools.get(tool, {}).get("inputSchema")
    threading.Thread(target=_read_client, args=(sys.stdin.buffer, inbox), daemon=True).start()
    why = "the gateway was stopped before the answer came"
    code = 0
    try:
        while True:
            try:
                what, line, more = inbox.get(timeout=session.next_s())
            except queue.Empty:
                session.give_up()
                continue
            if what == CLIENT:
                session.from_client(line)
            elif what == SERVER:
                session.from_server(line, is_refused=more is True)
            elif what == LOST:
                assert isinstance(more, tuple)
                session.unsent(more[0], line.decode(), is_sent=more[1])
            elif what == WARNING:
                reporter.warn(line.decode())
            else:
                why = (
                    "the client left before the answer came"
                    if what == CLIENT_GONE
                    else "the server ended before it answered"
                )
                break
    finally:
        with _held_off():
            code = upstream.close()
            session.begin_no_more()
            _drain(inbox, session)
            session.end(why)
            out.close()
    return code


@contextmanager
def _held_off() -> Iterator[None]:
    """No signal cuts this short: it ends soon, and what it leaves half done nobody else would do.

    A server has a session of its own and would live on; steps that stay open take what a person does for the agent's.
    """
    old = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    for number, handler in old.items():
        if handler != signal.SIG_IGN:
            signal.signal(
                number, lambda *_: None
            )  # not SIG_IGN, which programs that are started meanwhile would inherit
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _drain(inbox: Inbox, session: Session) -> None:
    """What the server still said: an outcome that is known is not written down as unknown."""
    while True:
        try:
            what, line, more = inbox.get_nowait()
        except queue.Empty:
            return
        if what == SERVER:
            session.from_server(line, is_refused=more is True)


def _read_client(stream: IO[bytes], inbox: Inbox) -> None:
    while line := stream.readline(MOST + 2):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MOST)  # of one that is too long the beginning is enough to refuse it
        inbox.put((CLIENT, line, None))
    inbox.put((CLIENT_GONE, b"", None))


def _read_server(stream: IO[bytes], inbox: Inbox) -> None:
    while line := stream.readline():
        inbox.put((SERVER, line if line.endswith(b"\n") else line + b"\n", None))
    inbox.put((SERVER_GONE, b"", None))


class _Writer:
    """Writes in a thread of its own, so that a slow reader at one side does not stop the other."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, line: bytes) -> None:
        self._lines.put(line)

    def close(self) -> bool:
        """Once all is written, or the reader is gone. Whether that is so: some never read what they were sent."""
        self._lines.put(None)
        self._thread.join(_GRACE_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                self._stream.write(line)
                self._stream.flush()
        except (OSError, ValueError):
            return  # nobody reads any more; the thread that reads from them says so


class _Stdio:
    """A server that we start, with all that it starts in its group; its errors go where ours go."""

    def __init__(self, server: Server, inbox: Inbox) -> None:
        self._child = subprocess.Popen(
            server.argv, cwd=server.cwd, env=dict(server.variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self._child.stdin is not None and self._child.stdout is not None
        self._in = _Writer(self._child.stdin)
        self._reader = threading.Thread(target=_read_server, args=(self._child.stdout, inbox), daemon=True)
        self._reader.start()

    def send(self, line: bytes) -> None:
        self._in.send(line)

    def close(self) -> int:
        until = time.monotonic() + _GRACE_S
        self._hang_up()
        try:
            # npx, uvx and scripts only start the server: what is left of it would write after its step is sealed
            if not self._is_over(until - time.monotonic() if self._child.poll() is None else 0):
                self._signal(signal.SIGTERM)
                self._is_over(_GRACE_S)  # also where only helpers are left: they may have something to save
        finally:
            if not self._is_over(0):
                self._signal(signal.SIGKILL)
        self._is_over(_GRACE_S)
        code = self._child.wait()
        self._hang_up()
        self._reader.join(_READ_S)
        return code if code >= 0 else 128 - code

    def _hang_up(self) -> None:
        assert self._child.stdin is not None
        if not self._in.close():
            return  # it does not read: closing would wait for what is being written
        try:
            self._child.stdin.close()
        except OSError:
            pass  # the server is gone, with what was not written yet

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._child.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left, or nobody that we may end

    def _is_over(self, wait_s: float) -> bool:
        """Whether the server and its group are gone, at the latest after so many seconds."""
        until = time.monotonic() + wait_s
        while True:
            if self._child.poll() is not None and not is_group_alive(self._child.pid):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)


class _Http:
    """A server at a URL. Messages leave in the order in which they came; answers are read side by side."""

    def __init__(self, server: Server, inbox: Inbox) -> None:
        self._url, self._inbox = server.url, inbox
        self._given = {k: credentials.resolve(v) if credentials.is_reference(v) else v for k, v in server.headers}
        self._session: dict[str, str] = {}
        self.schema_of: Callable[[str], object] = lambda _: None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._open: dict[str, HTTPConnection] = {}  # requests whose answer is awaited or being read
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, line: bytes) -> None:
        self._lines.put(line)

    def close(self) -> int:
        self._closed.set()
        self._lines.put(None)
        self._thread.join(_GRACE_S)
        if self._session.get("Mcp-Session-Id"):
            try:
                exchange("DELETE", self._url, self._headers(), None, timeout_s=_DELETE_S).connection.close()
            except Unanswered:
                pass  # it forgets the session by itself in time
        return 0

    def _headers(self) -> dict[str, str]:
        return {**self._session, **self._given}

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            message = parsed(line)
            if message is None:  # a batch, of the revision before last
                message = {}
            if message.get("method") == "notifications/cancelled" and self._abandon(message):
                continue
            self._post(line, message)

    def _abandon(self, message: dict[str, object]) -> bool:
        """In the modern era a call is called off by hanging up."""
        params = message.get("params")
        if self._session or not isinstance(params, dict):
            return False
        connection = self._open.pop(repr(params.get("requestId")), None)
        if connection is not None and connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
        return True

    def _post(self, line: bytes, message: dict[str, object]) -> None:
        params = message.get("params")
        tool = params.get("name") if isinstance(params, dict) else None
        own = headers_for(message, self.schema_of(tool) if isinstance(tool, str) else None)
        try:
            connection = send("POST", self._url, {**self._headers(), **own}, line.rstrip(), timeout_s=None)
        except Unanswered as e:
            self._lost(message, e.message, is_sent=e.is_sent)
            return
        if "id" in message and "method" in message:
            self._open[repr(message["id"])] = connection
            threading.Thread(target=self._read, args=(connection, message), daemon=True).start()
        else:
            self._read(connection, message)  # nothing may overtake it
        if message.get("method") == "notifications/initialized":
            threading.Thread(target=self._listen, daemon=True).start()

    def _read(self, connection: HTTPConnection, message: dict[str, object]) -> None:
        is_answered, is_sent, why = False, True, ""
        try:
            with Reply.of(connection) as reply:
                is_sent = reply.status not in NOT_RUN_STATUSES
                if message.get("method") == "initialize":
                    id = reply.header("Mcp-Session-Id")
                    self._session = {"Mcp-Session-Id": id} if id else {}
                for found, text in reply.messages():
                    is_answered |= "method" not in found and found.get("id") == message.get("id")
                    result = found.get("result")
                    if message.get("method") == "initialize" and isinstance(result, dict):
                        self._session["MCP-Protocol-Version"] = str(result.get("protocolVersion", ""))
                    self._inbox.put((SERVER, text.encode() + b"\n", not is_sent))
        except Unanswered as e:
            why, is_sent = e.message, is_sent and e.is_sent
        self._open.pop(repr(message.get("id")), None)
        if not is_answered:
            self._lost(message, why or "the server closed the connection without an answer", is_sent=is_sent)

    def _listen(self) -> None:
        """What the server says by itself; many say nothing, and answer 405. A stream that ends is opened again."""
        last_id, wait_s, failed, has_begun = "", _AGAIN_S, 0, False
        while not self._closed.is_set():
            reply, why, began_at = None, "", time.monotonic()
            failed += 1
            try:
                more = {"Last-Event-ID": last_id} if last_id else {}
                with exchange("GET", self._url, {**self._headers(), **more}, None, timeout_s=None) as reply:
                    why = f"the server answered {reply.status}"
                    if reply.status == 200:
                        failed, has_begun = 0, True
                        for _, text in reply.messages():
                            wait_s = _AGAIN_S
                            self._inbox.put((SERVER, text.encode() + b"\n", None))
            except Unanswered as e:
                why = e.message
            is_no = reply is not None and reply.status != 200 and reply.status < 500 and reply.status not in (408, 429)
            if is_no or failed == _TRIES:
                if (has_begun or not is_no) and not self._closed.is_set():
                    text = f"what the server says by itself does not reach the client any more: {why}"
                    self._inbox.put((WARNING, text.encode(), None))
                return
            if reply is not None:
                last_id = reply.last_id or last_id
                wait_s = wait_s if reply.retry_s is None else reply.retry_s
            if time.monotonic() - began_at > _LONGEST_S:
                wait_s = _AGAIN_S  # it was only quiet for long: some proxies end such a stream
            wait_s = min(max(wait_s, _SHORTEST_S), _LONGEST_S)
            self._closed.wait(wait_s)
            wait_s *= 2

    def _lost(self, message: dict[str, object], why: str, *, is_sent: bool) -> None:
        if "id" in message and "method" in message:
            self._inbox.put((LOST, why.encode(), (message["id"], is_sent)))
