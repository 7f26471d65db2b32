"""The door of the HTTP server, with curl: 421, 403, 401, 415, 413, and nothing in between."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve.mcp.http import Door, Token
from support.agentdesk import Agent, Person, drive, over_http

pytestmark = pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="needs curl")
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
KNOCK = ("-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """One server for all of these: its address, token and store."""
    folder = tmp_path_factory.mktemp("http")
    (folder / "project").mkdir()
    (folder / "project" / "a.txt").write_text("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRIEVE_HOME", str(folder / "home"))
        patch.setenv("REPRIEVE_CONFIG", str(folder / "config.toml"))
        with over_http(folder / "project") as (url, token):
            yield url, token, folder


def curl(*args: str) -> tuple[int, str]:
    done = subprocess.run(
        ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", *args], capture_output=True, text=True, check=False
    )
    body, _, code = done.stdout.rpartition("\n")
    return int(code or 0), body


def post(url: str, token: str, *more: str, body: str = PING) -> int:
    return curl("-X", "POST", url, "-H", f"Authorization: Bearer {token}", *KNOCK, *more, "-d", body)[0]


INIT = json.dumps(
    {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
)  # fmt: skip


def test_a_client_with_the_token_is_answered(served: tuple[str, str, Path]) -> None:
    url, token, _ = served
    assert post(url, token, body=INIT) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7373", "127.0.0.1", "127.0.0.1.evil.example", "0.0.0.0", "169.254.169.254"]
)
def test_S13_M5_TP17_a_foreign_host_gets_421(served: tuple[str, str, Path], host: str) -> None:
    url, token, _ = served
    assert post(url, token, "-H", f"Host: {host}", body=INIT) == 421


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil", "http://localhost", "http://127.0.0.1:1", "file://"],
)
def test_S14_S18_a_foreign_origin_gets_403(served: tuple[str, str, Path], origin: str) -> None:
    url, token, _ = served
    assert post(url, token, "-H", f"Origin: {origin}", body=INIT) == 403
    stream = ("-H", "Accept: text/event-stream", "-H", f"Authorization: Bearer {token}", "-H", f"Origin: {origin}")
    assert curl(url, *stream)[0] == 403
    upgrade = ("-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
               "-H", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")  # fmt: skip
    assert curl(url, *upgrade, "-H", f"Origin: {origin}", "-H", f"Authorization: Bearer {token}")[0] == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_S15_what_a_page_can_send_without_asking_gets_415(served: tuple[str, str, Path], kind: str) -> None:
    url, token, _ = served
    args = ("-X", "POST", url, "-H", f"Authorization: Bearer {token}", "-H", f"Content-Type: {kind}", "-d", INIT)
    assert curl(*args)[0] == 415
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        code, _ = curl("-X", method, *(("-I",) if method == "HEAD" else ()), url + "?name=reprieve_checkpoint")
        assert code in (401, 429), "no state changes by a GET, and nothing is said without the token"


def test_S16_TP17_no_token_a_wrong_one_and_one_in_the_query_get_401(served: tuple[str, str, Path]) -> None:
    url, token, _ = served
    tries: list[tuple[str, ...]] = [
        (), ("-H", "Authorization: Bearer wrong"), ("-H", f"Authorization: Basic {token}"),
        ("-H", f"Authorization: Bearer {token}x"), ("-H", f"Authorization: Bearer {token[:-1]}"),
        ("-H", f"Authorization: Bearer {token}", "-H", "Authorization: Bearer x"),
    ]  # fmt: skip
    for args in tries:
        assert curl("-X", "POST", url, *KNOCK, *args, "-d", INIT)[0] in (401, 429), args
    assert curl("-X", "POST", f"{url}?token={token}&access_token={token}", *KNOCK, "-d", INIT)[0] in (401, 429)


def test_S16_guessing_is_told_to_wait_and_the_owner_is_not(served: tuple[str, str, Path]) -> None:
    url, token, _ = served
    done = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}\n", "-X", "POST", *KNOCK, "-d", INIT,
         "-H", "Authorization: Bearer guess", f"{url}?[1-60]"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    codes = done.stdout.split()
    assert set(codes) <= {"401", "429"}
    assert codes[-1] == "429"
    assert post(url, token, body=INIT) == 200


def test_S17_TP17_it_listens_on_loopback_only(served: tuple[str, str, Path]) -> None:
    port = int(served[0].split(":")[2].partition("/")[0])
    with open("/proc/net/tcp") as file:
        bound = {row.split()[1] for row in file.readlines()[1:] if row.split()[3] == "0A"}
    assert [address for address in bound if address.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    with open("/proc/net/tcp6") as file:
        assert not any(
            row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in file.readlines()[1:]
        )
    with socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", port))


def test_S41_a_body_beyond_the_limit_gets_413(served: tuple[str, str, Path], tmp_path: Path) -> None:
    url, token, _ = served
    large = tmp_path / "large"
    large.write_text('{"jsonrpc":"2.0","id":1,"method":"' + "x" * (5 << 20) + '"}')
    assert post(url, token, body=f"@{large}") == 413
    nested = tmp_path / "nested"
    nested.write_text('{"jsonrpc":"2.0","id":1,"method":"ping","params":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert 400 <= post(url, token, body=f"@{nested}") < 500
    assert post(url, token, body=INIT) == 200


def test_the_token_is_readable_by_its_owner_alone(served: tuple[str, str, Path]) -> None:
    _, token, folder = served
    path = folder / "home" / "mcp.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 43


def test_S39_a_revoked_token_ends_with_the_next_request(project: Path, home: Path) -> None:
    """A new token in the file, or none: the old one is worth nothing; a file that others can read is none."""
    with over_http(project) as (url, token):
        assert post(url, token, body=INIT) == 200
        path = home / "mcp.token"
        path.write_text("another-token-of-somebody\n")
        assert post(url, token, body=INIT) == 401
        assert post(url, "another-token-of-somebody", body=INIT) == 200
        path.unlink()
        assert post(url, "another-token-of-somebody", body=INIT) == 401
        assert post(url, "", body=INIT) == 401


def test_a_token_file_that_cannot_be_used_refuses_every_request_and_is_told_once(tmp_path: Path) -> None:
    """Readable by others, bytes that are no text, a link: 503, and one line with its hint; and again what it was."""
    said: list[str] = []
    passed: list[object] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    path = tmp_path / "mcp.token"
    token = Token(str(path))
    token.make()
    door = Door(inner, token, 7373, say=said.append)
    good = token.read()

    def status() -> int:
        sent: list[Any] = []
        headers = [(b"host", b"127.0.0.1:7373"), (b"authorization", f"Bearer {good}".encode())]

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {}

        asyncio.run(door({"type": "http", "method": "GET", "path": "/mcp", "headers": headers}, receive, send))
        return int(sent[0]["status"]) if sent else 200

    assert status() == 200
    path.chmod(0o644)
    assert [status(), status()] == [503, 503] and len(said) == 1
    assert "read by others" in said[0] and "--new-token" in said[0]
    path.chmod(0o600)
    path.write_bytes(b"\xff\xfe")
    assert status() == 503 and "no token" in said[1]
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    assert status() == 503 and len(said) == 3
    path.unlink()
    assert status() == 401 and len(passed) == 1
    path.write_text(good)
    path.chmod(0o600)
    assert status() == 200 and len(passed) == 2


def test_S01_a_plan_of_another_session_is_not_applied(served: tuple[str, str, Path]) -> None:
    """Over HTTP several agents share one server: a plan belongs to the session that made it."""
    url, token, folder = served
    headers = {"Authorization": f"Bearer {token}"}
    file = folder / "project" / "a.txt"

    async def first(agent: Agent) -> Any:
        await agent("checkpoint", label="before")
        file.write_text("broken")
        plan = (await agent("plan_rollback", ref="before"))["plan"]["id"]
        async with anyio_client(url, headers) as other:
            assert (await other.fails("apply_plan", plan_id=plan))["code"] == "bad_ref"
        assert file.read_text() == "broken"
        await agent("apply_plan", plan_id=plan)
        return plan

    drive(url, first, mode="legacy", person=Person(), headers=headers)
    assert file.read_text() == "a"


def anyio_client(url: str, headers: dict[str, str]) -> Any:
    from contextlib import asynccontextmanager

    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def opened() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(url, http_client=http), mode="legacy", elicitation_callback=Person()
            ) as client,
        ):
            yield Agent(client)

    return opened()
