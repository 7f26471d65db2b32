"""Every line that waits for an answer gets one, whatever is in it, and the server goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agentdesk import over_stdio


class Client:
    """Sends lines as they are, and reads answers."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdin is not None and server.stdout is not None
        self._in, self._out = server.stdin, server.stdout

    def send(self, line: bytes) -> None:
        self._in.write(line + b"\n")
        self._in.flush()

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._out.readline())
        return found

    def ask(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())
        return self.answer()


@pytest.fixture
def client(project: Path) -> Iterator[Client]:
    how = over_stdio(project)
    with subprocess.Popen(
        [how.command, *how.args], cwd=project, env=how.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        made = Client(server)
        made.ask(
            1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}
        )
        made.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield made
        assert made.ask(99, "ping")["id"] == 99, "it still serves"


@pytest.mark.timeout(60)
def test_half_of_a_surrogate_pair_does_no_harm(client: Client) -> None:
    r"""A model that cut an emoji in two sends "\ud83d" alone; whole pairs stay what they are."""
    told = client.ask(2, "tools/call", name="reprieve_checkpoint", arguments={"label": "fix \ud83d \U0001f600 \udcff"})
    assert told["id"] == 2
    assert told["result"]["structuredContent"]["checkpoint"]["label"] == "fix \ufffd \U0001f600 \ufffd"
    for halved in ({"name": "reprieve_\ud83d"}, {"name": "reprieve_track", "arguments": {"paths": ["\ud83d"]}}):
        assert client.ask(3, "tools/call", **halved)["id"] == 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"{not json", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'"text"', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":3}', -32600, 7),
        (b'{"jsonrpc":"1.0","id":"seven","method":"ping"}', -32600, "seven"),
        (b'{"jsonrpc":"2.0","id":7,"result":3}', -32600, None),  # the id of a call of ours, if any
        (b'"' + b"x" * (5 << 20) + b'"', -32600, None),
    ],
)
def test_what_is_no_message_is_answered(client: Client, line: bytes, code: int, id: Any) -> None:
    client.send(line)
    told = client.answer()
    assert (told["error"]["code"], told["id"]) == (code, id)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", [b"", b"  ", b'{"jsonrpc":"2.0","method":3}'])
def test_what_nobody_waits_for_is_passed_over(client: Client, line: bytes) -> None:
    client.send(line)
