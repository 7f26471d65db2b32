"""What the MCP server costs: its start against a ten-line server of the same SDK, a call against the library's.

python -m benchmarks.mcp                       seven starts of each, 10,000 files, forty checkpoints of each
python -m benchmarks.mcp --files 1000 --rounds 3       a look

Start is from launching the process to the answer of the first request (`tools/list`), over standard input and output;
the two servers take turns. A checkpoint is of an unchanged tree: `Workspace.checkpoint` in this process, and
`reprieve_checkpoint` over standard input and output, in turns. Times are the least of all rounds: what else the machine
does only ever adds. The target is for the server, measured by a client of few lines that has one request under way; the
time that the SDK's own client takes for the same calls, its check of each answer against the schema included, is told
beside it.

Needs `pip install 'reprieve[mcp]'`. The exit code is 0 if every target is met, 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.ours import run_installed

START, CALL = 2.5, 1.25  # at most this many times what it is compared with
TEN_LINES = '''\
from mcp.server.mcpserver import MCPServer

server = MCPServer("ten")


@server.tool()
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


server.run("stdio")
'''


class Wire:
    """A server as a process, and JSON-RPC to it; nothing of the SDK's client is measured."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._server = subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        self._id = 0
        self.ask("initialize", hello)
        self._send({"method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request; its result."""
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        assert self._server.stdout is not None
        while True:
            line = self._server.stdout.readline()
            if not line:
                raise SystemExit(f"{method}: the server ended")
            answer = json.loads(line)
            if answer.get("id") == self._id:
                found: dict[str, Any] = answer["result"]
                return found

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._server.stdin.flush()

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()


def start(command: list[str], cwd: Path) -> float:
    """Seconds from launching a server to its list of tools."""
    begun = time.perf_counter()
    wire = Wire(command, cwd)
    assert wire.ask("tools/list", {})["tools"]
    took = time.perf_counter() - begun
    wire.close()
    return took


def starts(ours: list[str], cwd: Path, rounds: int) -> tuple[float, float]:
    """The least of each, in turns."""
    (cwd / "ten.py").write_text(TEN_LINES)
    pairs = [(start([sys.executable, "ten.py"], cwd), start(ours, cwd)) for _ in range(rounds)]
    return min(ten for ten, _ in pairs), min(mine for _, mine in pairs)


def with_sdk(ours: list[str], tree: Path, rounds: int) -> float:
    """The least time of the same checkpoint by the SDK's own client."""
    import anyio
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    async def measure() -> float:
        place = StdioServerParameters(command=ours[0], args=ours[1:], cwd=str(tree), env=dict(os.environ))
        took = []
        async with Client(place, mode="legacy") as client:
            for n in range(rounds + 1):
                begun = time.perf_counter()
                found = await client.call_tool("reprieve_checkpoint", {"label": f"s{n}"})
                took.append(time.perf_counter() - begun)
                assert not found.is_error
        return min(took[1:])

    return anyio.run(measure)


def calls(ours: list[str], cwd: Path, files: int, rounds: int) -> tuple[float, float, float]:
    """The least time of a checkpoint of an unchanged tree: by the library, by the tool, by the tool and the SDK."""
    from reprieve.app.finding import open_workspace

    tree = cwd / "tree"
    for n in range(files):
        folder = tree / f"d{n // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n}").write_text(f"{n}\n" * 20)
    library, tool = [], []
    with open_workspace(str(tree), create=True) as ws:
        ws.checkpoint("first")
        time.sleep(2.1)  # timestamps of this very moment are looked at again; an unchanged tree has old ones
        ws.checkpoint("second")
        wire = Wire(ours, tree)
        wire.ask("tools/call", {"name": "reprieve_checkpoint", "arguments": {"label": "warm"}})
        for n in range(rounds):
            begun = time.perf_counter()
            ws.checkpoint(f"l{n}")
            library.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            found = wire.ask("tools/call", {"name": "reprieve_checkpoint", "arguments": {"label": f"t{n}"}})
            tool.append(time.perf_counter() - begun)
            assert found["structuredContent"]["checkpoint"]["files"] == files
        wire.close()
    return min(library), min(tool), with_sdk(ours, tree, rounds)


def main() -> int:
    """Measure and say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--starts", type=int, default=7)
    given = parser.parse_args()
    ours = [sys.executable, "-m", "reprieve", "mcp"]
    with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as place:
        os.environ["REPRIEVE_HOME"] = str(Path(place) / "home")
        os.environ["REPRIEVE_HELPER"] = "off"
        ten, mine = starts(ours, Path(place), given.starts)
        library, tool, sdk = calls(ours, Path(place), given.files, given.rounds)
    rows = (
        ("start to first answer", "ten-line server", ten, mine, START),
        (f"checkpoint of {given.files:,} unchanged files", "library call", library, tool, CALL),
    )
    is_met = True
    for what, peer, theirs, ours_s, most in rows:
        ratio = ours_s / theirs
        is_met = is_met and ratio <= most
        verdict = "met" if ratio <= most else "MISSED"
        print(f"{what}: {ours_s * 1e3:.1f} ms, {peer} {theirs * 1e3:.1f} ms: {ratio:.2f} × (at most {most}) {verdict}")
    print(f"the same by the SDK's client: {sdk * 1e3:.1f} ms, {sdk / library:.2f} ×")
    return 0 if is_met else 1


if __name__ == "__main__":
    if find_spec("mcp") is None or find_spec("reprieve") is None:
        sys.exit(run_installed("benchmarks.mcp", extra="mcp", beside=[]))
    sys.exit(main())
