"""An MCP client that sees every byte: starts a server (or our gateway before one) and talks to it line by line."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GATEWAY = (sys.executable, "-m", "reprieve", "gateway")
PATIENCE_S = 30.0


class Wire:
    """One conversation. Requests of the server's are answered by `asked`, if it is given."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines: list[bytes] = []
        self.errors = b""
        self.asked: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.requests: list[dict[str, Any]] = []  # that the server made
        self.notes: list[dict[str, Any]] = []
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._kept: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> int:
        """Hang up; the exit code."""
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def put(self, message: object) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def ask(self, method: str, params: object = None) -> Any:
        """The id of a request that is sent now."""
        self._number += 1
        self.put({"jsonrpc": "2.0", "id": self._number, "method": method, **({"params": params} if params else {})})
        return self._number

    def answer(self, id: object) -> dict[str, Any]:
        """The answer to a request; fails if none comes."""
        key, until = json.dumps(id), time.monotonic() + PATIENCE_S
        while key not in self._kept:
            try:
                found = self._answers.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no answer to {id}; it said: {self.errors.decode()}") from None
            if found is None:
                raise AssertionError(f"it ended before it answered {id}; it said: {self.errors.decode()}")
            self._kept[json.dumps(found.get("id"))] = found
        return self._kept.pop(key)

    def hello(self, **capabilities: object) -> dict[str, Any]:
        """The handshake of the first era."""
        info = {"name": "tester", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info}
        found = self.answer(self.ask("initialize", params))
        self.put({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return found

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The result of a tool."""
        found = self.answer(self.ask("tools/call", {"name": tool, "arguments": arguments}))
        assert "result" in found, found
        result: dict[str, Any] = found["result"]
        return result

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            message = json.loads(line)
            if "method" not in message:
                self._answers.put(message)
            elif "id" in message:
                self.requests.append(message)
                if self.asked is not None:
                    self.put({"jsonrpc": "2.0", "id": message["id"], "result": self.asked(message)})
            else:
                self.notes.append(message)
        self._answers.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line


def until(is_so: Callable[[], object], what: str) -> None:
    """Wait until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.02)
