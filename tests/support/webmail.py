"""Gmail's and Microsoft Graph's drafts on loopback, as far as they are documented."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Webmail:
    """Drafts by id, and what was sent. `fail` maps "POST /path" to a status, or 0 to hang up after it was done."""

    url: str = ""
    drafts: dict[str, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    fail: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def put(self, data: bytes) -> str:
        self.count += 1
        self.drafts[f"d{self.count}"] = data
        return f"d{self.count}"

    def by_message_id(self, text: str) -> list[str]:
        return [
            id for id, data in self.drafts.items() if str(message_from_bytes(data)["message-id"]).strip("<>") in text
        ]


def _gmail(mail: Webmail, method: str, path: str, query: str, body: bytes) -> tuple[int, object]:
    given = json.loads(body) if body else {}
    if (method, path) == ("POST", "/users/me/drafts"):
        return 200, {"id": mail.put(base64.urlsafe_b64decode(given["message"]["raw"]))}
    if (method, path) == ("GET", "/users/me/drafts"):
        return 200, {"drafts": [{"id": id} for id in mail.by_message_id(parse_qs(query)["q"][0])]}
    if (method, path) == ("POST", "/users/me/drafts/send"):
        if given["id"] not in mail.drafts:
            return 404, {}
        del mail.drafts[given["id"]]
        mail.sent.append(base64.urlsafe_b64decode(given["message"]["raw"]))
        return 200, {"id": "m1"}
    if (method, path) == ("POST", "/users/me/messages/send"):
        mail.sent.append(base64.urlsafe_b64decode(given["raw"]))
        return 200, {"id": "m1"}
    id = path.rpartition("/")[2]
    if id not in mail.drafts:
        return 404, {}
    if method == "DELETE":
        del mail.drafts[id]
        return 204, None
    return 200, {"id": id}


def _graph(mail: Webmail, method: str, path: str, query: str, body: bytes) -> tuple[int, object]:
    if (method, path) == ("POST", "/me/messages"):
        return 201, {"id": mail.put(base64.b64decode(body))}
    if (method, path) == ("GET", "/me/messages"):
        return 200, {"value": [{"id": id} for id in mail.by_message_id(parse_qs(query)["$filter"][0])]}
    id = path.removesuffix("/send").rpartition("/")[2]
    if id not in mail.drafts:
        return 404, {}
    if path.endswith("/send"):
        mail.sent.append(mail.drafts.pop(id))
        return 202, None  # and nothing in it
    if method == "DELETE":
        del mail.drafts[id]
        return 204, None
    return 200, {"id": id, "isDraft": True}


@contextmanager
def webmail(kind: str, token: str = "right") -> Iterator[Webmail]:
    """A provider of that kind: gmail or graph."""
    mail = Webmail()
    answer = {"gmail": _gmail, "graph": _graph}[kind]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            what = f"{self.command} {unquote(parts.path)}"
            mail.heard.append(what)
            status: int
            if self.headers["Authorization"] != f"Bearer {token}":
                status, value = 401, {}
            elif mail.fail.get(what.rstrip("0123456789")):
                status, value = mail.fail[what.rstrip("0123456789")], {}
            else:
                status, value = answer(mail, self.command, unquote(parts.path), parts.query, body)
                if what in mail.fail:
                    self.close_connection = True
                    return
            data = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    mail.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield mail
    server.shutdown()
    server.server_close()
