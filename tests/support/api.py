"""A real HTTP API on loopback: things with ids and ETags, idempotency keys, and every way to fail on request.

/things, /things/ID       POST, GET, PUT, PATCH, DELETE
/charges, /refunds        POST; refunds are counted, and one key is one refund
/private/…                needs the header Authorization: Bearer right
/answers/STATUS           answers so
/later/N                  says 429 N times, then 200
/breaks                   does what it was asked to and closes the connection without an answer
"""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.listening import answering


@dataclass
class Seen:
    """One request that arrived."""

    method: str
    path: str
    body: str
    headers: dict[str, str]


@dataclass
class Api:
    """What the server has, and what it saw."""

    url: str = ""
    things: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    requests: list[Seen] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # changes in their order, "DELETE /things/1"
    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    later: Counter[str] = field(default_factory=Counter)
    refunds: list[str] = field(default_factory=list)
    next_id: int = 0
    busy: int = 0  # connections that are being served
    lock: threading.RLock = field(default_factory=threading.RLock)

    def sent(self, method: str, path: str) -> list[Seen]:
        """Requests of that kind."""
        return [seen for seen in self.requests if (seen.method, seen.path) == (method, path)]

    def settle(self) -> None:
        """Wait until what clients sent before has been worked off, also where they died since."""
        with urllib.request.urlopen(f"{self.url}/answers/200"):
            pass  # accepted in turn: all earlier connections are known by now
        deadline = time.monotonic() + 10
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not self.busy, "a connection is still being served"

    def changes(self) -> list[Seen]:
        """Requests that are no mere look."""
        return [seen for seen in self.requests if seen.method != "GET"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        with self.api.lock:
            self.api.requests.append(Seen(self.command, self.path, body, dict(self.headers)))
            self.answer(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

    def answer(self, body: str) -> None:
        api, path = self.api, self.path.partition("?")[0]
        if path.startswith("/private/"):
            if self.headers.get("Authorization") != "Bearer right":
                return self.say(401, {"error": "who are you"})
            path = path.removeprefix("/private")
        key = self.headers.get("Idempotency-Key")
        if key and key in api.keys:
            return self.raw(*api.keys[key])
        parts = path.strip("/").split("/")
        if parts[0] == "answers":
            return self.say(int(parts[1]), {})
        if parts[0] == "later":
            api.later[path] += 1
            if api.later[path] <= int(parts[1]):
                return self.say(429, {}, {"Retry-After": "0"})
            api.done.append(f"{self.command} {path}")
            return self.say(200, {})
        if parts[0] == "breaks":
            api.done.append(f"{self.command} {path}")
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        if parts[0] in ("charges", "refunds"):
            api.next_id += 1
            if parts[0] == "refunds":
                api.refunds.append(body)
            api.done.append(f"{self.command} {path}")
            return self.say(201, {"id": f"ch_{api.next_id}"}, key=key)
        return self.thing(parts, body, key)

    def thing(self, parts: list[str], body: str, key: str | None) -> None:
        api, path = self.api, "/" + "/".join(parts)
        if len(parts) == 1 and self.command == "POST":
            api.next_id += 1
            id = str(api.next_id)
            api.things[id] = {**json.loads(body or "{}"), "id": id}
            api.versions[id] += 1
            api.done.append(f"POST {path}")
            return self.say(201, api.things[id], {"Location": f"/{parts[0]}/{id}"}, key=key)
        id = parts[-1]
        there = id in api.things
        if self.headers.get("If-None-Match") == "*" and there:
            return self.say(412, {})
        if (match := self.headers.get("If-Match")) and match != f'"{api.versions[id]}"':
            return self.say(412, {})
        if self.command == "GET":
            return self.say(200, api.things[id], {"ETag": f'"{api.versions[id]}"'}) if there else self.say(404, {})
        if self.command == "DELETE":
            if not there:
                return self.say(404, {})
            del api.things[id]
        elif self.command == "PUT":
            api.things[id] = {**json.loads(body), "id": id}
        elif not there:
            return self.say(404, {})
        else:
            api.things[id] |= json.loads(body)
        api.versions[id] += 1
        api.done.append(f"{self.command} {path}")
        return self.say(200, api.things.get(id, {}), {"ETag": f'"{api.versions[id]}"'}, key=key)

    def say(self, status: int, what: object, headers: dict[str, str] | None = None, *, key: str | None = None) -> None:
        data = json.dumps(what).encode()
        if key:
            self.api.keys[key] = (status, data)
        self.raw(status, data, headers)

    def raw(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving() -> Iterator[Api]:
    """The API for as long as the block lasts."""
    api = Api()
    handler = type("Handler", (_Handler,), {"api": api})

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def process_request(self, request: Any, client_address: Any) -> None:
            with api.lock:
                api.busy += 1
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            with api.lock:
                api.busy -= 1

        def handle_error(self, request: Any, client_address: Any) -> None:
            return  # clients that die in the middle are what this is for

    with answering(Server(("127.0.0.1", 0), handler)) as api.url:
        yield api
