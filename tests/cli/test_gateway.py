"""`reprieve gateway`: what its command line takes. What passes through it is in tests/gateways/."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support import Cli
from support.mcpwire import GATEWAY, Wire


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--url", "ftp://x"),
        ("--url", "http://a:b@x/"),
        ("--", "no-such-program-x"),
        ("--env", "LD_PRELOAD", "--", "true"),
        ("--url", "http://x/", "--header", "Authorization: Bearer abcdef"),
    ],
    ids=["no server", "no http", "password", "no program", "S06", "secret"],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("gateway", *words, check=False).code in (2, 5)


def test_s16_a_server_that_refuses_our_credential_is_a_refused_call(cli: Cli, project: Path, home: Path) -> None:
    """The answer is an error of the protocol, and what was not accepted is no effect that may have happened."""
    with serving_401() as url:
        words = ("--url", url, "--header", "Authorization: Bearer env:CANARY")
        (project.parent / "catalog").mkdir()
        rule = {"id": "x.t", "server": ["127.0.0.1"], "tool": ["t"], "class": "reversible"}
        (project.parent / "catalog" / "x.json").write_text(json.dumps({"provider": "x", "tools": [rule]}))
        with Wire((*GATEWAY, *words), cwd=project, env={"CANARY": "secret-canary-1"}) as wire:
            found = wire.answer(wire.ask("tools/call", {"name": "t", "arguments": {}}))
        assert "401" in found["error"]["message"]
    (effect,) = cli("effects", "--json").json["effects"]
    assert effect["state"] == "refused" and "401" in effect["detail"]
    assert not any(b"secret-canary-1" in path.read_bytes() for path in home.rglob("*") if path.is_file())


@contextmanager
def serving_401() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Authorization"] == "Bearer secret-canary-1"
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()


def test_a_server_by_its_path_is_that_of_the_directory_that_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    (project / "server").write_text("#!/bin/sh\npwd > started\n")
    (project / "server").chmod(0o755)
    cli("-C", "project", "gateway", "--", "./server", cwd=tmp_path, check=False, timeout=30)
    assert (project / "started").read_text() == f"{project}\n"
