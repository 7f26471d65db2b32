"""How the gateway ends its server: in time, all of it, and whoever is ended meanwhile."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateways.scripted import program
from support import Cli
from support.mcpwire import Wire, until

Gateway = Callable[..., Wire]

HELPED = """
import signal, subprocess

TOOLS = []
HELPER = '''
import os, signal, sys, time
def end(*_):
    time.sleep(0.2)
    open(sys.argv[1] + "/saved", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, end)
open(sys.argv[1] + "/up", "w").close()
time.sleep(60)
'''
subprocess.Popen([sys.executable, "-c", HELPER, str(HERE)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
wait_for("up")
"""


def test_a_helper_that_outlives_its_server_may_still_save_its_work(gateway: Gateway, toy: Path, tmp_path: Path) -> None:
    """The server ends as it was asked; a database or a language server that it kept has a moment after SIGTERM."""
    wire = gateway(program(tmp_path / "helped", HELPED))
    wire.hello()
    wire.close()
    assert (toy / "saved").exists()


STUBBORN = """
import signal

TOOLS = [{"name": "write_file"}]
signal.signal(signal.SIGTERM, lambda *_: (HERE / "asked").touch())


def call(name, arguments, params):
    (HERE / "began").write_text(str(os.getpid()))
    for _ in range(400):
        time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_the_server_is_ended_leaves_neither_a_server_nor_an_open_step(
    number: signal.Signals, gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """Clients hang up and then lose patience. A server in a session of its own would go on writing, unseen."""
    wire = gateway(program(tmp_path / "mcp-server-filesystem", STUBBORN), str(project))
    wire.hello()
    wire.ask("tools/call", {"name": "write_file", "arguments": {"path": str(project / "README.md"), "content": "x"}})
    until(lambda: (toy / "began").exists() and (toy / "began").read_text(), "the server is at it")
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    until((toy / "asked").exists, "the gateway ends its server")
    wire.process.send_signal(number)
    wire.close()
    assert not Path("/proc", (toy / "began").read_text()).exists() or sys.platform != "linux"
    (effect,) = cli("effects", "--json").json["effects"]
    assert effect["state"] == "unknown" and "the client left" in effect["detail"]
    (project / "mine.txt").write_text("a person's")
    assert "mine.txt  by you" in cli("status").out


def test_a_server_that_never_reads_what_it_is_sent_is_ended_too(gateway: Gateway, toy: Path, tmp_path: Path) -> None:
    """What is being written to it can't be waited for."""
    wire = gateway(program(tmp_path / "deaf", '(HERE / "up").touch()\ntime.sleep(60)\n'))
    until((toy / "up").exists, "the server is up")
    wire.put({"jsonrpc": "2.0", "method": "notifications/odd", "params": {"data": "x" * (1 << 20)}})
    assert wire.close() == 128 + signal.SIGTERM


LAST_WORDS = """
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": info}), flush=True)
    elif message.get("method") == "tools/list":
        listed = message["id"]
        (HERE / "asked").touch()
print(json.dumps({"jsonrpc": "2.0", "id": listed, "result": {"tools": [{"name": "write_file"}]}}), flush=True)
sys.exit()
"""


def test_a_call_that_waits_for_the_list_is_not_begun_once_the_server_is_gone(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """It never left: an effect that nobody knows the end of would be a worry about nothing."""
    wire = gateway(program(tmp_path / "mcp-server-filesystem", LAST_WORDS), str(project))
    wire.hello()
    wire.ask("tools/call", {"name": "write_file", "arguments": {"path": str(project / "a"), "content": "x"}})
    until((toy / "asked").exists, "the call waits for the list")
    wire.close()
    assert cli("effects", "--json").json["effects"] == []
