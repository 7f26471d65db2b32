"""A server whose tools a test writes: a program on standard streams, or one over HTTP.

A body defines TOOLS, and call(name, arguments, params): what the tool does, and its result. {"error": {...}} is an
error of the protocol, None no answer at all. HERE is the folder TOY.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_HEAD = """
import json, os, sys, threading, time
from pathlib import Path

HERE = Path(os.environ["TOY"])
TOOLS = []


def wait_for(name):
    while not (HERE / name).exists():
        time.sleep(0.02)


"""
_TAIL = """

def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if id is None or method is None:
            continue
        result = {}
        if method == "initialize":
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in TOOLS]}
        elif method == "tools/call":
            result = call(params["name"], params.get("arguments") or {}, params)
        if result is not None:
            said = result if set(result) == {"error"} else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": id, **said}), flush=True)


main()
"""
META = "io.modelcontextprotocol/"
MODERN = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientInfo": {"name": "tester", "version": "1"},
    f"{META}clientCapabilities": {"elicitation": {"form": {}}},
}


def program(path: Path, body: str) -> str:
    """Write the server there; the catalog knows it by its file's name."""
    path.write_text(f"#!{sys.executable}\n{_HEAD}{body}{_TAIL}")
    path.chmod(0o755)
    return str(path)


class HttpServer:
    """A server over HTTP. `call` gives the status, the kind of content and the body of a tool's answer."""

    def __init__(self, tools: list[str], call: Callable[[str, object], tuple[int, str, bytes]]) -> None:
        self.called: list[str] = []
        self.stream: Callable[[BaseHTTPRequestHandler, int], None] | None = None  # what a GET gets, and which one it is
        self.streams: list[dict[str, str]] = []  # the headers of each GET
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def do_GET(self) -> None:
                if outer.stream is None:
                    self.say(405, "text/plain", b"")
                    return
                outer.streams.append(dict(self.headers.items()))
                outer.stream(self, len(outer.streams))

            def do_DELETE(self) -> None:
                self.say(200, "text/plain", b"")

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                method, params = message.get("method"), message.get("params") or {}
                result: dict[str, Any] = {}
                if "id" not in message:
                    self.say(202, "text/plain", b"")
                    return
                if method == "initialize":
                    info = {"name": "scripted", "version": "1"}
                    version = params["protocolVersion"]
                    result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                elif method == "tools/list":
                    result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
                elif method == "tools/call":
                    outer.called.append(params["name"])
                    self.say(*call(params["name"], message["id"]))
                    return
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                self.say(200, "application/json", body, **{"Mcp-Session-Id": "s"})

            def say(self, status: int, kind: str, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                return  # a gateway that hangs up is no fault of ours

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
