"""What the journal and a rollback say of a call that did not end plainly: with an error, late, asked back, cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gateways.scripted import MODERN, HttpServer, program
from reprieve.app.finding import open_workspace
from reprieve.app.mcp_calls import Server, ToolCalls
from reprieve.gateways.mcp_session import LATE_S, Session
from reprieve.model.reporter import Reporter
from support import Cli
from support.mcpwire import Wire, until
from support.terminal import at_terminal

Gateway = Callable[..., Wire]
YES = {"action": "accept", "content": {"allow": True}}


def effects(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli("effects", "--json").json["effects"]
    return found


ERRORS = """
TOOLS = [{"name": "charge"}]


def call(name, arguments, params):
    code = arguments["code"]
    if code not in (-32700, -32600, -32601):
        with open(HERE / "charged", "a") as charged:
            charged.write("once\\n")
    return {"error": {"code": code, "message": "no receipt"}}
"""


@pytest.mark.parametrize("code", [-32603, "odd", -32602, -32601, -32700])
def test_an_error_of_the_protocol_is_a_refusal_only_if_it_says_so(
    code: object, gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    """Also "wrong parameters" may come after the work: SDKs give it for a result that is wrong, tools raise it."""
    with gateway(program(tmp_path / "shop", ERRORS)) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: YES
        wire.answer(wire.ask("tools/call", {"name": "charge", "arguments": {"code": code}}))
    (effect,) = effects(cli)
    is_done = (toy / "charged").exists()
    assert effect["state"] == ("unknown" if is_done else "refused") and "no receipt" in str(effect["detail"])


FAILS = """
TOOLS = [{"name": "write_file"}]


def call(name, arguments, params):
    Path(arguments["path"]).write_text("half")
    return {"isError": True, "content": [{"type": "text", "text": "no space left"}]}
"""


def test_a_tool_that_failed_half_way_outside_of_the_workspace_is_not_called_refused(
    gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    """Also where a rule knows the tool; inside of the workspace the half comes back with the files."""
    cli("checkpoint", "base")
    with gateway(program(tmp_path / "mcp-server-filesystem", FAILS), str(tmp_path)) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: YES
        assert wire.call("write_file", path=str(toy / "out"))["isError"]
    (effect,) = effects(cli)
    assert effect["state"] == "unknown" and (toy / "out").read_text() == "half"
    report = cli("rollback", "base", "--yes", "--json", check=False).json["report"]
    assert [e["state"] for e in report["effects"]] == ["manual"]


@pytest.mark.parametrize("status", [500, 408, 303])
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_a_status_after_which_a_call_may_have_happened_leaves_it_unknown(
    status: int, kind: str, gateway: Gateway, cli: Cli
) -> None:
    assert _state_after(status, kind, gateway, cli) == "unknown"


@pytest.mark.parametrize("status", [400, 404, 429])
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_a_status_that_means_not_run_is_a_refusal(status: int, kind: str, gateway: Gateway, cli: Cli) -> None:
    assert _state_after(status, kind, gateway, cli) == "refused"


@pytest.mark.parametrize("code", [-32602, -32603, 7, "odd"])
def test_a_status_that_only_repeats_a_tools_own_error_is_no_refusal(code: object, gateway: Gateway, cli: Cli) -> None:
    """A server may make its 400 out of the error of a tool that ran."""
    assert _state_after(400, "application/json", gateway, cli, code) == "unknown"


def _state_after(status: int, kind: str, gateway: Gateway, cli: Cli, code: object = None) -> object:
    number = code or (-32000 if status < 500 else -32603)

    def call(name: str, id: object) -> tuple[int, str, bytes]:
        said = {"jsonrpc": "2.0", "id": id, "error": {"code": number, "message": "no"}}
        return status, kind, json.dumps(said).encode() if kind == "application/json" else b"<h1>no</h1>"

    with HttpServer(["charge"], call) as server:
        with gateway(options=("--url", server.url)) as wire:
            wire.hello(elicitation={})
            wire.asked = lambda _: YES
            assert "error" in wire.answer(wire.ask("tools/call", {"name": "charge", "arguments": {}}))
        assert server.called == ["charge"]
    (effect,) = effects(cli)
    return effect["state"]


SLOW = """
TOOLS = [{"name": "write_file"}]


def call(name, arguments, params):
    (HERE / "began").touch()
    wait_for("go")
    Path(arguments["path"]).write_text(arguments["content"])
    return {"content": [{"type": "text", "text": "written"}]}
"""


def canceled(id: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "time-out"}}


def test_what_a_server_writes_after_its_call_was_called_off_is_taken_back(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """A client's time-out calls a call off; the server need not heed it. That is not a person's work."""
    cli("checkpoint", "base")
    target = project / "README.md"
    before = target.read_bytes()
    with gateway(program(tmp_path / "mcp-server-filesystem", SLOW), str(project)) as wire:
        wire.hello()
        id = wire.ask("tools/call", {"name": "write_file", "arguments": {"path": str(target), "content": "late"}})
        until((toy / "began").exists, "the server is at it")
        wire.put(canceled(id))
        until(lambda: effects(cli)[0]["state"] == "unknown", "that is on disk")
        (toy / "go").touch()
        wire.answer(id)
        until(lambda: effects(cli)[0]["state"] == "done", "what became of it is known after all")
        (project / "mine.txt").write_text("a person's")  # the step is sealed
        cli("rollback", "base", "--yes")
        assert target.read_bytes() == before and (project / "mine.txt").read_text() == "a person's"


def test_a_call_that_was_called_off_and_never_answered_does_not_take_a_persons_work_for_ever(
    project: Path, cli: Cli
) -> None:
    """Most servers never answer such a call. Its step is sealed in the end, at the latest with the session."""
    now = 0.0
    sent: list[bytes] = []
    cli("checkpoint", "base")
    session = a_session_whose_call_was_called_off(project, sent, lambda: now)
    (project / "README.md").write_text("late")
    assert session.next_s() == LATE_S <= 10  # seconds: whoever calls an agent's work off may go on by hand at once
    now = LATE_S
    assert session.next_s() == 0
    session.give_up()
    assert session.next_s() is None
    (project / "mine.txt").write_text("a person's")
    cli("rollback", "base", "--yes")
    assert (project / "README.md").read_text() != "late" and (project / "mine.txt").exists()
    assert [e["state"] for e in effects(cli)] == ["unknown"]
    session.from_client(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b"under way" in sent[-1]  # its answer may come still, and is not that of another


def test_a_call_that_was_called_off_and_never_left_is_over_at_once(project: Path, cli: Cli) -> None:
    """Its server could not be reached: nobody is at it, and what changes from then on is a person's."""
    session = a_session_whose_call_was_called_off(project, [], lambda: 0.0)
    session.unsent(1, "nobody is there", is_sent=False)
    assert session.next_s() is None
    (project / "mine.txt").write_text("a person's")
    assert "mine.txt  by you" in cli("status").out
    assert [(e["state"], "nobody is there" in str(e["detail"])) for e in effects(cli)] == [("refused", True)]


def test_a_call_that_was_called_off_by_hanging_up_keeps_its_seconds(project: Path, cli: Cli) -> None:
    """It arrived; that no answer will come does not say that its server stopped."""
    session = a_session_whose_call_was_called_off(project, [], lambda: 0.0)
    session.unsent(1, "the connection broke", is_sent=True)
    assert session.next_s() == LATE_S
    session.end("over")
    assert [e["state"] for e in effects(cli)] == ["unknown"]


def a_session_whose_call_was_called_off(project: Path, sent: list[bytes], clock: Callable[[], float]) -> Session:
    """A call of write_file with the id 1, sent on."""
    server = Server(("mcp-server-filesystem",), str(project))
    calls = ToolCalls(lambda: open_workspace(str(project), create=True), server, session="s")
    session = Session(
        calls, name="s", to_server=sent.append, to_client=sent.append, reporter=Reporter(), clock=clock
    )  # fmt: skip
    params = {"name": "write_file", "arguments": {"path": str(project / "README.md"), "content": "x"}}
    session.from_client(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
    listed = json.loads(sent[0])
    session.from_server(json.dumps({"jsonrpc": "2.0", "id": listed["id"], "result": {"tools": []}}).encode())
    assert len(sent) == 2 and b"write_file" in sent[1] and session.next_s() is None
    session.from_client(json.dumps(canceled(1)).encode())
    return session


def test_a_server_behind_a_script_is_ended_before_its_step_is_sealed(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """As npx and uvx do, the script starts the server: ending the script alone would leave one that goes on writing."""
    noted = SLOW.replace(".touch()", ".write_text(str(os.getpid()))")
    real = program(tmp_path / "real", noted)
    script = tmp_path / "mcp-server-filesystem"
    script.write_text(f'#!/bin/sh\n"{real}" "$@"\nexit $?\n')
    script.chmod(0o755)
    wire = gateway(str(script), str(project))
    wire.hello()
    target = str(project / "README.md")
    wire.ask("tools/call", {"name": "write_file", "arguments": {"path": target, "content": "late"}})
    until(lambda: (toy / "began").exists() and (toy / "began").read_text(), "the server is at it")
    wire.close()
    assert not is_at_work(int((toy / "began").read_text()))
    assert [e["state"] for e in effects(cli)] == ["unknown"]


def is_at_work(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


ASKS = """
TOOLS = [{"name": "write_file"}]


def call(name, arguments, params):
    if "inputResponses" not in params:
        return {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    with open(arguments["path"], "a") as file:
        file.write(arguments["content"])
    return {"resultType": "complete", "content": []}
"""


def test_while_a_server_asks_back_what_changes_is_a_persons(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """The client may never come again. If it does, that round is a step of its own and the same effect."""
    cli("checkpoint", "base")
    target, mine = project / "README.md", project / "mine.txt"
    before = target.read_bytes()
    params = {"name": "write_file", "arguments": {"path": str(target), "content": "x"}, "_meta": MODERN}
    with gateway(program(tmp_path / "mcp-server-filesystem", ASKS), str(project)) as wire:
        assert wire.answer(wire.ask("tools/call", params))["result"]["resultType"] == "input_required"
        (effect,) = effects(cli)
        assert effect["state"] == "unknown" and "asked back" in str(effect["detail"])
        mine.write_text("an hour's work")
        again = {**params, "requestState": "s", "inputResponses": {}}
        assert wire.answer(wire.ask("tools/call", again))["result"]["resultType"] == "complete"
        assert target.read_bytes() == before + b"x"
        assert [(e["id"], e["state"]) for e in effects(cli)] == [(effect["id"], "done")]
        cli("rollback", "base", "--yes")
        assert target.read_bytes() == before and mine.read_text() == "an hour's work"


def test_two_equal_calls_that_are_asked_back_at_once_are_two_effects(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    params = {"name": "write_file", "arguments": {"path": str(project / "a"), "content": "x"}, "_meta": MODERN}
    with gateway(program(tmp_path / "mcp-server-filesystem", ASKS), str(project)) as wire:
        for more in ({}, {"requestState": "s", "inputResponses": {}}):
            for id in [wire.ask("tools/call", {**params, **more}) for _ in range(2)]:
                assert "result" in wire.answer(id)
        assert [e["state"] for e in effects(cli)] == ["done", "done"]
        (project / "mine.txt").write_text("a person's")  # no window is left open
        assert "mine.txt  by you" in cli("status").out


WRITES = """
TOOLS = [{"name": "write_file"}]


def call(name, arguments, params):
    Path(arguments["path"]).write_text(arguments["content"])
    return {"content": []}
"""


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("setting", [("exclude", "*.bin"), ("max_file_size", "1000")])
def test_what_checkpoints_leave_out_is_not_called_covered(
    setting: tuple[str, str], is_new: bool, gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """Where that is known before the call a person is asked; else it is found out after it."""
    cli("config", "set", *setting)
    target = project / "a.bin"
    if not is_new:
        target.write_text("p" * 5000)
    cli("checkpoint", "base")
    with gateway(program(tmp_path / "mcp-server-filesystem", WRITES), str(project)) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: YES
        assert not wire.call("write_file", path=str(target), content="x" * 7000).get("isError")
        is_known = setting[0] == "exclude" or not is_new
        assert len(wire.requests) == (1 if is_known else 0)
    (effect,) = effects(cli)
    assert effect["undo_state"] == (None if is_known else "manual")
    report = cli("rollback", "base", "--yes", "--json", check=False)
    assert report.code == 6 and effect["id"] in [e["id"] for e in report.json["report"]["effects"]]


def test_a_gap_can_be_written_to_after_a_persons_yes_in_a_terminal(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, tmp_path: Path, a_persons_terminal: None
) -> None:
    cli("config", "set", "max_file_size", "1000")
    target = project / "big"
    target.write_text("p" * 5000)
    with gateway(program(tmp_path / "mcp-server-filesystem", WRITES), str(project)) as wire:
        wire.hello()
        refused = wire.call("write_file", path=str(target), content="x")
        error = refused["structuredContent"]["error"]
        assert refused["isError"] and "not protected" in error["message"] and effects(cli) == []
        assert at_terminal("approve", error["approval"], cwd=project, answer="y\n")[0] == 0
        assert not wire.call("write_file", path=str(target), content="x").get("isError")
    assert target.read_text() == "x"


ODD = """
TOOLS = [{"name": "create_item", "annotations": [1]}, {"name": "delete_item", "inputSchema": {"required": REQUIRED}}]


def call(name, arguments, params):
    return {"content": "odd", "structuredContent": {"id": 1}}
"""


@pytest.mark.parametrize("required", ['[["x"]]', '[{"a": 1}, "item_id"]', '"item_id"', '{"item_id": 1}', "[None]"])
def test_an_odd_schema_of_a_server_ends_nothing(
    required: str, gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    with gateway(program(tmp_path / "shop", ODD.replace("REQUIRED", required))) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: YES
        assert wire.call("create_item")["structuredContent"] == {"id": 1}
        assert wire.answer(wire.ask("ping"))["result"] == {}
    (effect,) = effects(cli)
    assert (effect["state"], effect["inverse"]) == ("done", None) and "does not say" in str(effect["detail"])
    assert wire.errors == b""


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_stream_of_the_servers_own_that_ends_is_opened_again(is_broken: bool, gateway: Gateway) -> None:
    """Broken or ended in good order, it goes on after the newest event, when the server says."""

    def stream(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}})
        event = f"id: e{number}\nretry: 150\ndata: {note}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event) + (b"" if is_broken else b"0\r\n\r\n"))
        handler.close_connection = True

    with HttpServer([], lambda *_: (200, "application/json", b"")) as server:
        server.stream = stream
        with gateway(options=("--url", server.url)) as wire:
            wire.hello()
            until(lambda: len(wire.notes) >= 3, "three streams were read")
    assert [note["params"]["data"] for note in wire.notes[:3]] == [1, 2, 3]
    assert [head.get("Last-Event-ID") for head in server.streams[:3]] == [None, "e1", "e2"]


def test_a_stream_that_the_server_does_not_open_again_is_told(gateway: Gateway) -> None:
    def stream(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.send_response(200 if number == 1 else 404)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Content-Length", "0" if number > 1 else "12")
        handler.end_headers()
        if number == 1:
            handler.wfile.write(b"retry: 100\n\n")

    with HttpServer([], lambda *_: (200, "application/json", b"")) as server:
        server.stream = stream
        with gateway(options=("--url", server.url)) as wire:
            wire.hello()
            until(lambda: b"says by itself" in wire.errors, "it is told")
            assert wire.answer(wire.ask("ping"))["result"] == {}
    assert b"404" in wire.errors and b"Traceback" not in wire.errors
