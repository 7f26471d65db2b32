"""A real HTTP API on loopback for clients under record: collections with ETags, keys, and faults that one asks for.

Things live in any collection: POST /COLLECTION makes one, GET, PUT, PATCH, DELETE /COLLECTION/ID work on it, POST on it
updates it. A fault is armed for the next request of a method: `shop.faults["POST"] = ["reset"]`.

    reset    does it, then breaks the connection       lost     breaks the connection before doing anything
    500      does it, then says 500 without a body     slow     does it, then sends its answer a byte at a time
    endless  does it, then sends an answer without end  (ghosts: shown for so many looks after it is gone)
    NNN      says NNN and does nothing
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reprieve.app.workspace import Workspace
from reprieve.model.plan import Report
from support.listening import answering


@dataclass
class Shop:
    """What the server has, what it saw, and what it is to do wrong."""

    url: str = ""
    things: dict[str, dict[str, Any]] = field(default_factory=dict)  # "/items/1" → its fields
    versions: dict[str, int] = field(default_factory=dict)
    raw: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # "/files/a" → type, bytes
    seen: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # what was really done
    faults: dict[str, list[str]] = field(default_factory=dict)
    replies: dict[str, tuple[int, object, dict[str, str]]] = field(default_factory=dict)  # "POST /x" → a fixed answer
    operations: dict[str, str] = field(default_factory=dict)
    ghosts: dict[str, int] = field(default_factory=dict)
    shown: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    next_id: int = 0
    can_put_new: bool = True
    merging: tuple[str, ...] = ()  # methods that merge what they are sent into what is there, as JSON merge patch does
    lock: threading.RLock = field(default_factory=threading.RLock)

    def changes(self) -> list[str]:
        """Requests that are no look, in order."""
        return [f"{method} {path}" for method, path in self.seen if method != "GET"]

    def add(self, path: str, **fields: Any) -> None:
        """Put a thing there."""
        id = path.rpartition("/")[2]
        self.things[path] = {"id": int(id) if id.isdecimal() else id, **fields}
        self.versions[path] = self.versions.get(path, 0) + 1
        self.next_id = max(self.next_id, int(id) if id.isdecimal() else 0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    shop: Shop

    def do(self) -> None:
        body = self.body()
        with self.shop.lock:
            self.shop.seen.append((self.command, self.path))
            self.shop.headers.append(dict(self.headers))
            armed = self.shop.faults.get(self.command, [])
            fault = armed.pop(0) if armed else ""
            if fault == "lost":
                return self.break_off()
            if fault.isdecimal() and fault != "500":
                return self.say(int(fault), {"error": fault}, {"Retry-After": "0"})
            status, what, more = self.answer(body)
        if fault == "reset":
            return self.break_off()
        if fault == "500":
            return self.say(500, None)
        if fault in ("slow", "endless"):
            return self.drip(status, what, fault)
        return self.say(status, what, more)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("the client is gone")  # half a request is none
        return data

    def answer(self, body: bytes) -> tuple[int, object, dict[str, str]]:
        shop, path = self.shop, self.path.partition("?")[0]
        fixed = shop.replies.get(f"{self.command} {path}")
        if fixed is not None:
            shop.done.append(f"{self.command} {path}")
            return fixed
        if path in shop.operations:
            return 200, {"status": shop.operations[path]}, {}
        if path.startswith("/files/"):
            return self.file(path, body)
        there = path in shop.things
        etag = {"ETag": f'"{shop.versions.get(path, 0)}"'}
        if self.headers.get("If-None-Match") == "*" and there:
            return 412, {}, {}
        if self.headers.get("If-Match", etag["ETag"]) != etag["ETag"]:
            return 412, {}, {}
        if self.command == "GET":
            if not there and shop.ghosts.get(path):
                shop.ghosts[path] -= 1
                return 200, {"id": 0}, {}
            if there:
                shown = shop.shown.get(path, lambda thing: thing)(shop.things[path])
                return 200, shown, etag
            inside = [thing for key, thing in shop.things.items() if key.rpartition("/")[0] == path]
            return (200, inside, {}) if inside else (404, {}, {})
        sent = json.loads(body) if body[:1] in (b"{", b"[") else {}
        if self.command == "POST" and not there:
            id = sent.get("id")
            if id is None:
                shop.next_id += 1
                id = shop.next_id
            at = f"{path}/{id}"
            shop.things[at] = {**sent, "id": id}
            shop.versions[at] = 1
            shop.done.append(f"POST {path}")
            return 201, shop.things[at], {"Location": at}
        if self.command == "DELETE":
            if not there:
                return 404, {}, {}
            del shop.things[path]
        elif self.command == "PUT":
            if not there and not shop.can_put_new:
                return 405, {}, {}
            last = path.rpartition("/")[2]
            if "PUT" in shop.merging:
                sent = _merged(shop.things.get(path), sent)
            shop.things[path] = {**sent, "id": int(last) if last.isdecimal() else last}
        elif there and self.command in shop.merging:
            shop.things[path] = _merged(shop.things[path], sent)
        elif there:
            shop.things[path] = {**shop.things[path], **sent}
        else:
            return 404, {}, {}
        shop.versions[path] = shop.versions.get(path, 0) + 1
        shop.done.append(f"{self.command} {path}")
        return 200, shop.things.get(path, {}), {"ETag": f'"{shop.versions[path]}"'}

    def file(self, path: str, body: bytes) -> tuple[int, object, dict[str, str]]:
        shop = self.shop
        if self.command == "GET":
            if path not in shop.raw:
                return 404, {}, {}
            type, data = shop.raw[path]
            return 200, data, {"Content-Type": type}
        if self.command == "DELETE":
            shop.raw.pop(path, None)
        else:
            shop.raw[path] = (self.headers.get("Content-Type", ""), body)
        shop.done.append(f"{self.command} {path}")
        return 204, None, {}

    def say(self, status: int, what: object, headers: dict[str, str] | None = None) -> None:
        data = what if isinstance(what, bytes) else b"" if what is None else json.dumps(what).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def drip(self, status: int, what: object, fault: str) -> None:
        data = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)) if fault == "slow" else str(10**12))
        self.end_headers()
        try:
            for byte in data:
                self.wfile.write(bytes([byte]))
                time.sleep(0.001)
            while fault == "endless":
                self.wfile.write(b" " * 65536)
        except OSError:
            self.close_connection = True

    def break_off(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


def _merged(there: Any, sent: Any) -> Any:
    """RFC 7396."""
    if not isinstance(sent, dict):
        return sent
    found = dict(there) if isinstance(there, dict) else {}
    for key, value in sent.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is no error of the server's."""


@contextmanager
def open_shop() -> Iterator[Shop]:
    """The server for as long as the block lasts."""
    shop = Shop()
    handler = type("Handler", (_Handler,), {"shop": shop})
    with answering(_Server(("127.0.0.1", 0), handler)) as shop.url:
        yield shop


def take_back(ws: Workspace, **options: Any) -> Report:
    """Roll back to where the test began, effects included."""
    report = ws.rollback("base", effects="undo", **options)[1]
    assert report is not None
    return report


def states(report: Report) -> list[str]:
    """What became of each effect."""
    return [outcome.state for outcome in report.effects]
