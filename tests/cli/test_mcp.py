"""`reprieve mcp` as a process: what a client that knows only JSON-RPC sees. tests/mcp_server has the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import Cli


def talk(project: Path, *messages: Any) -> tuple[list[Any], str, int]:
    """Send messages (or raw lines) to a server over its standard input; its answers up to the last message's."""
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    last = next(m["id"] for m in reversed(messages) if isinstance(m, dict) and "id" in m)
    command = [sys.executable, "-m", "reprieve", "mcp"]
    with subprocess.Popen(
        command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    ) as server:
        assert server.stdin and server.stdout and server.stderr
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = []
        for line in server.stdout:
            answers.append(json.loads(line))
            if answers[-1].get("id") == last:
                break
        server.stdin.close()
        err = server.stderr.read().decode()
        return answers, err, server.wait(60)


def hello(version: str = "2025-11-25") -> list[dict[str, Any]]:
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]


def call(id: int, tool: str, **args: Any) -> dict[str, Any]:
    params = {"name": f"reprieve_{tool}", "arguments": args}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def test_a_client_is_told_how_to_work_reversibly(project: Path) -> None:
    (answer, *_), err, code = talk(project, *hello())
    told = answer["result"]
    assert told["serverInfo"]["name"] == "reprieve"
    assert "reprieve_checkpoint" in told["instructions"]
    assert (err, code) == ("", 0)


def test_a_checkpoint_over_the_wire_is_one_of_the_command_line(project: Path, cli: Cli) -> None:
    answers, _, _ = talk(project, *hello(), call(1, "checkpoint", label="by wire"))
    (made,) = [a["result"]["structuredContent"]["checkpoint"] for a in answers if a.get("id") == 1]
    assert cli("show", made["id"], "--json").json["entry"]["label"] == "by wire"


def test_S41_oversized_and_broken_messages_end_nothing(project: Path) -> None:
    """A message beyond the limit, deep nesting, no JSON, no object: the next call is answered as if nothing was."""
    huge = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"' + b"x" * (5 << 20) + b'"}}'
    deep = b'{"jsonrpc":"2.0","id":8,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answers, _, code = talk(project, *hello(), huge, deep, b"not json", b"[]", b"\xff\xfe", call(9, "doctor"))
    (good,) = [a for a in answers if a.get("id") == 9]
    assert good["result"]["structuredContent"]["ok"] is True
    assert code == 0


def test_options_of_http_need_http(cli: Cli, project: Path) -> None:
    for args in (["--port", "1"], ["--new-token"], ["--http", "--port", "70000"]):
        assert cli("mcp", *args, check=False).code == 2


def test_a_missing_library_is_named(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Without the extra the command says what to install."""
    (tmp_path / "no" / "mcp").mkdir(parents=True)
    (tmp_path / "no" / "mcp" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = f"{tmp_path / 'no'}:{Path(__file__).resolve().parents[2] / 'src'}"
    done = cli("mcp", env={"PYTHONPATH": path}, check=False)
    assert done.code == 3
    assert "reprieve[mcp]" in done.err


def test_install_prints_and_writes_nothing_unless_it_is_told_to(cli: Cli, user: Path, project: Path) -> None:
    printed = cli("mcp", "install", "cursor", "--json").json
    assert json.loads(printed["snippet"])["mcpServers"]["reprieve"]["args"][0] == "mcp"
    assert not (user / ".cursor").exists()
    assert ".cursor/mcp.json" in cli("mcp", "install", "cursor").out


def test_install_writes_and_uninstall_leaves_no_trace(cli: Cli, user: Path, project: Path) -> None:
    mine = '{\n  // mine\n  "mcpServers": {"x": {"command": "y"}}\n}\n'
    (project / ".mcp.json").write_text(mine)
    done = cli("mcp", "install", "claude-code", "--scope", "project", "--write", "--json").json
    assert done["changes"][0]["change"] == "install" and "+" in done["changes"][0]["diff"] and done["left_to_do"]
    assert "// mine" in (project / ".mcp.json").read_text() and "reprieve" in (project / ".mcp.json").read_text()
    again = cli("mcp", "install", "claude-code", "--scope", "project", "--write", "--json").json
    assert again["changes"][0]["change"] == "none"
    cli("mcp", "install", "goose", "--write")
    assert cli("mcp", "uninstall", "--dry-run", "--json").json["changes"][0]["diff"]
    cli("mcp", "uninstall")
    assert (project / ".mcp.json").read_text() == mine and not (user / ".config").exists()
    assert "no client" in cli("mcp", "uninstall").out


def test_hooks_and_a_server_in_one_folder_leave_no_trace(cli: Cli, user: Path) -> None:
    before = sorted(user.rglob("*"))
    for first in ("hooks", "server"):
        cli("protect", "opencode", "--yes")
        cli("mcp", "install", "opencode", "--write", "--yes")
        taken_out = [("unprotect", "opencode", "--yes"), ("mcp", "uninstall", "opencode", "--yes")]
        for words in taken_out if first == "hooks" else reversed(taken_out):
            cli(*words)
        assert sorted(user.rglob("*")) == before


def test_a_configured_command_really_serves(cli: Cli, user: Path, project: Path) -> None:
    """What is written is what a client can start."""
    cli("mcp", "install", "claude-desktop", "--write")
    (path,) = user.rglob("claude_desktop_config.json")
    entry = json.loads(path.read_text())["mcpServers"]["reprieve"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(
        [entry["command"], *entry["args"]], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
    ) as server:
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "reprieve"
        server.stdin.close()


def test_what_does_not_go_together_is_refused(cli: Cli, user: Path) -> None:
    for words in (
        ("install",), ("install", "emacs"), ("install", "cursor", "--http"), ("install", "cursor", "--dry-run"),
        ("uninstall", "--write"), ("--write",), ("--scope", "user"), ("install", "goose", "--scope", "project"),
        ("remove", "cursor"),
    ):  # fmt: skip
        assert cli("mcp", *words, check=False).code == 2, words


def test_a_broken_file_is_named_and_left_alone(cli: Cli, user: Path) -> None:
    (user / ".cursor").mkdir()
    (user / ".cursor" / "mcp.json").write_text("{ broken")
    result = cli("mcp", "install", "cursor", "--write", "--json", check=False)
    assert result.code == 3 and "not valid JSON" in result.json["error"]["message"]
    assert (user / ".cursor" / "mcp.json").read_text() == "{ broken"


def test_signals_end_a_server_whose_client_still_listens(project: Path) -> None:
    """SIGTERM and Ctrl-C end it at once, with the exit codes of every command, while its input stays open."""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-m", "reprieve", "mcp"], cwd=project, **pipes) as server:  # type: ignore[call-overload]
            server.stdin.write(json.dumps(hello()[0]).encode() + b"\n")
            server.stdin.flush()
            assert json.loads(server.stdout.readline())["id"] == 0
            server.send_signal(number)
            assert server.wait(30) == code, server.stderr.read()
            assert server.stdout.read() == b""


def test_input_from_a_file_and_lines_in_pieces_are_read(project: Path, tmp_path: Path) -> None:
    """Epoll does not know files, and a pipe may deliver half a line: the messages are the same."""
    file = tmp_path / "in"
    file.write_bytes(b"\n".join(json.dumps(message).encode() for message in hello()) + b"\n")
    with file.open("rb") as given:
        done = subprocess.run(
            [sys.executable, "-m", "reprieve", "mcp"],
            cwd=project,
            stdin=given,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert json.loads(done.stdout.splitlines()[0])["id"] == 0
    with subprocess.Popen(
        [sys.executable, "-m", "reprieve", "mcp"], cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as server:
        assert server.stdin and server.stdout
        whole = json.dumps(hello()[0]).encode() + b"\n" + json.dumps(hello()[1]).encode() + b"\n"
        for start in range(0, len(whole), 40):
            server.stdin.write(whole[start : start + 40])
        assert json.loads(server.stdout.readline())["id"] == 0
        server.stdin.close()
        assert server.wait(30) == 0
