"""Many clients at once, some of them confused: nobody is dropped, nothing leaks, what was acknowledged is there."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reprieve.app.finding import open_workspace

CLIENTS, CALLS, BAD = 32, 200, 0.01
# Calls of each client before its CALLS are measured. Sessions, threads and their caches come with the first 2,400 calls
# (75 MB to 119); the 7,200 after them added 2.2 % in all.
WARM = 75
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class Wire:
    """A client of few lines: one connection, one session."""

    def __init__(self, port: int, token: str) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self._headers = {**HEADERS, "Authorization": f"Bearer {token}"}
        self._id = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "l", "version": "1"}}
        self.ask("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self) -> None:
        self._http.close()

    def send(self, message: Any) -> tuple[int, bytes]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self._http.request("POST", "/mcp", body, self._headers)
        answer = self._http.getresponse()
        if session := answer.getheader("mcp-session-id"):
            self._headers["mcp-session-id"] = session
        return answer.status, answer.read()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        status, body = self.send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert status == 200, (status, body)
        data = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and len(line) > 6]
        found = json.loads(data[-1] if data else body)
        assert found["id"] == self._id
        return found

    def call(self, tool: str, **args: Any) -> Any:
        return self.ask("tools/call", {"name": f"reprieve_{tool}", "arguments": args})


def worker(number: int, port: int, token: str, acknowledged: list[str], problems: list[str], pause: Any) -> None:
    rng = random.Random(number)
    wire = Wire(port, token)
    try:
        for n in range(WARM + CALLS):
            if n == WARM:
                pause.wait()  # measured here
                pause.wait()
            if rng.random() < BAD:
                bad(wire, rng)
                continue
            kind = rng.choices(("checkpoint", "log", "thread", "show", "tools"), (2, 3, 2, 2, 1))[0]
            if kind == "checkpoint":
                made = wire.call("checkpoint", label=f"{number}-{n}")["result"]["structuredContent"]
                assert made["ok"], made
                acknowledged.append(made["checkpoint"]["id"])
            elif kind == "log":
                assert wire.call("log", limit=5)["result"]["structuredContent"]["ok"]
            elif kind == "thread":
                saved = wire.call("thread_save", thread=f"t{number}", state={"n": n})["result"]["structuredContent"]
                assert saved["ok"], saved
            elif kind == "show":
                assert wire.call("show", ref="latest")["result"]["structuredContent"]["ok"]
            else:
                wire.ask("ping", {})
    except Exception as error:
        problems.append(f"client {number}: {type(error).__name__}: {error}")
        pause.abort()
    finally:
        wire.close()


def bad(wire: Wire, rng: random.Random) -> None:
    """What a confused client sends; it is told so, and that is all."""
    kind = rng.randrange(5)
    if kind == 0:
        assert wire.send(b'{"jsonrpc": "2.0", "id": 1, ')[0] == 400
    elif kind == 1:
        assert "error" in wire.call("no_such_tool")
    elif kind == 2:
        assert wire.call("checkpoint", label=["not", "a", "text"])["result"]["isError"]
    elif kind == 3:
        assert wire.call("show", ref="\0" * 100)["result"]["isError"]
    else:
        assert wire.call("plan_rollback", only=["../../etc"], cwd="/")["result"]["isError"]


def memory(pid: int) -> int:
    """kB that are not shared with others."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]


@pytest.mark.slow
def test_32_clients_with_200_calls_each_and_one_in_a_hundred_wrong(project: Path, home: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("w") as err:
        server = subprocess.Popen(
            [sys.executable, "-m", "reprieve", "mcp", "--http", "--port", "0"], cwd=project, stderr=err
        )
    acknowledged: list[str] = []
    problems: list[str] = []
    try:
        port, token = address(log, home)
        with closing(Wire(port, token)) as wire:
            assert wire.call("checkpoint", label="first")["result"]["structuredContent"]["ok"]
        pause = threading.Barrier(CLIENTS + 1, timeout=300)
        threads = [
            threading.Thread(target=worker, args=(n, port, token, acknowledged, problems, pause))
            for n in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        pause.wait()
        before = memory(server.pid)
        pause.wait()
        for thread in threads:
            thread.join()
        after = memory(server.pid)
        assert not problems
        assert server.poll() is None, "the server ended"
        with closing(Wire(port, token)) as wire:
            assert wire.call("doctor")["result"]["structuredContent"]["ok"]
    finally:
        server.terminate()
        server.wait(60)
    assert after <= before * 1.05, f"memory grew from {before} kB to {after} kB"
    assert len(acknowledged) > CLIENTS * CALLS / 10
    with open_workspace(str(project)) as ws:
        there = {entry.id for entry in ws.log()}
    assert set(acknowledged) <= there
    assert "Traceback" not in log.read_text()


def address(log: Path, home: Path) -> tuple[int, str]:
    """Where the server listens, as soon as it says so."""
    import time

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = re.search(r"127\.0\.0\.1:(\d+)/mcp\n.*mcp\.token\n", log.read_text())
        if found:
            return int(found[1]), (home / "mcp.token").read_text().strip()
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text()} {os.listdir(home) if home.exists() else ''}")
