"""What the journal and a rollback say of a call that did not end plainly: with an error, late, asked back, cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateways.scripted import HttpServer, program
from support import Cli
from support.mcpwire import Wire

Gateway = Callable[..., Wire]
YES = {"action": "accept", "content": {"allow": True}}


def effects(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli("effects", "--json").json["effects"]
    return found


ERRORS = """
TOOLS = [{"name": "charge"}]


def call(name, arguments, params):
    code = arguments["code"]
    if code not in (-32700, -32600, -32601, -32602):
        with open(HERE / "charged", "a") as charged:
            charged.write("once\\n")
    return {"error": {"code": code, "message": "no receipt"}}
"""


@pytest.mark.parametrize("code", [-32603, "odd", -32602, -32700])
def test_an_error_of_the_protocol_is_a_refusal_only_if_it_says_so(
    code: object, gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    """An internal error may come after the work was done: the journal must not say that nothing happened."""
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


def _state_after(status: int, kind: str, gateway: Gateway, cli: Cli) -> object:
    def call(name: str, id: object) -> tuple[int, str, bytes]:
        said = {"jsonrpc": "2.0", "id": id, "error": {"code": -32000 if status < 500 else -32603, "message": "no"}}
        return status, kind, json.dumps(said).encode() if kind == "application/json" else b"<h1>no</h1>"

    with HttpServer(["charge"], call) as server:
        with gateway(options=("--url", server.url)) as wire:
            wire.hello(elicitation={})
            wire.asked = lambda _: YES
            assert "error" in wire.answer(wire.ask("tools/call", {"name": "charge", "arguments": {}}))
        assert server.called == ["charge"]
    (effect,) = effects(cli)
    return effect["state"]
