"""What passes the gateway unchanged, what stops there, and what is written down: against a server of few lines."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gateways.conftest import TOY
from reprieve.effects.mcp_client import Unanswered, send
from support import Cli
from support.mcpwire import Wire, until
from support.terminal import at_terminal

Gateway = Callable[..., Wire]


def effects(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli("effects", "--json").json["effects"]
    return found


def seen(toy: Path) -> list[bytes]:
    """What reached the server."""
    path = toy / "seen"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def rule(tmp_path: Path, **more: object) -> None:
    """A rule of the user's own for the small server."""
    folder = tmp_path / "catalog"
    folder.mkdir()
    tool = {"id": "toy.rule", "server": ["toy-server"], "tool": ["slow", "smash"], "class": "reversible", **more}
    (folder / "toy.json").write_text(json.dumps({"provider": "toy", "tools": [tool]}))


def test_all_but_tool_calls_passes_byte_for_byte(gateway: Gateway, toy: Path) -> None:
    """Both ways: odd spaces, escapes, order of names, unknown methods, numbers as they were written."""
    lines = [
        b'{"jsonrpc" : "2.0" ,"id": "a\\u0031" , "method":"odd/answer","params":{"x":1.50e2,"\xc3\xa9":[ ]} }\n',
        b'{"method":"notifications/whatever","jsonrpc":"2.0","params":{"z":"\\/"}}\n',
        b'{"id":7,"method":"resources/read","jsonrpc":"2.0","extra":null}\r\n',
        b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"look" , "arguments":{"n":1.0}}}\n',
    ]
    with gateway(*TOY) as wire:
        wire.hello()
        wire.ask("tools/list")
        until(lambda: len(wire.lines) == 2, "two answers")
        wire.ask("tools/list", {"cursor": "2"})
        until(lambda: len(wire.lines) == 3, "three answers")
        before = len(seen(toy))
        for line in lines:
            wire.send(line)
        until(lambda: len(wire.lines) == 6, "all are answered")
    assert seen(toy)[before:] == lines
    assert wire.lines[3] == (
        b'{"jsonrpc" : "2.0" ,"id" : "a1" ,"result" : {"echo" : "'
        + json.dumps(lines[0].decode())[1:-1].encode()
        + b'"}}\n'
    )
    assert json.loads(wire.lines[4])["result"]["echo"].encode() == lines[2]


def test_progress_and_requests_of_the_servers_pass(gateway: Gateway, toy: Path) -> None:
    with gateway(*TOY) as wire:
        wire.hello()
        wire.asked = lambda request: {"heard": request["params"]}
        id = wire.ask("tools/call", {"name": "talk", "arguments": {}, "_meta": {"progressToken": "p1"}})
        assert wire.answer(id)["result"]["content"][0]["text"] == "talk done"
    assert (
        b'{"jsonrpc" : "2.0" ,"id" : "s1" ,"method" : "sampling/createMessage" ,"params" : {"n" : 1}}\n' in wire.lines
    )
    assert json.loads((toy / "reply").read_text())["result"] == {"heard": {"n": 1}}
    assert wire.notes[-1]["params"] == {"progressToken": "p1", "progress": 1}


def test_a_tool_without_annotations_is_destructive(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, a_persons_terminal: None
) -> None:
    """It waits for a person's yes to exactly that call, once; and is then an effect without a way back."""
    cli("checkpoint", "base")
    target = project / "README.md"
    with gateway(*TOY) as wire:
        wire.hello()
        result = wire.call("smash", write=str(target))
        error = result["structuredContent"]["error"]
        assert result["isError"] and error["code"] == "refused" and error["class"] == "irreversible"
        assert f"reprieve approve {error['approval']}" in result["content"][0]["text"]
        assert not any(b"tools/call" in line for line in seen(toy)) and effects(cli) == []
        code, screen = at_terminal("approve", error["approval"], cwd=project, answer="y\n")
        assert code == 0 and "smash" in screen and str(target) in screen
        other = wire.call("smash", write=str(project / "tool.sh"))
        assert other["isError"]  # another call
        assert not wire.call("smash", write=str(target)).get("isError")
        assert target.read_text() == "smashed\n"
        assert wire.call("smash", write=str(target))["isError"]  # once
    (effect,) = effects(cli)
    assert (effect["class"], effect["state"], effect["inverse"]) == ("irreversible", "done", None)
    report = cli("rollback", "base", "--yes", "--json", check=False).json["report"]
    assert target.read_text() == "# A project\n\nIt does things.\n"  # files come back all the same
    assert [e["state"] for e in report["effects"]] == ["irreversible"]


def test_a_claim_to_only_read_is_not_enough_in_autopilot(gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[policy]\nmode = "autopilot"\n')
    with gateway(*TOY) as wire:
        wire.hello()
        result = wire.call("look")
        assert result["isError"] and "word alone" in result["content"][0]["text"]
        config.write_text(f'[policy]\nmode = "autopilot"\ntrusted_servers = ["{" ".join(TOY)}"]\n')
        assert not wire.call("look").get("isError")
        assert wire.call("smash")["isError"]
    assert effects(cli) == []


@pytest.mark.parametrize("is_yes", [True, False])
def test_s07_s42_the_clients_own_form_asks_the_person(gateway: Gateway, toy: Path, cli: Cli, is_yes: bool) -> None:
    with gateway(*TOY) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: {"action": "accept" if is_yes else "decline", "content": {"allow": is_yes}}
        result = wire.call("smash", note="\u202e\x1b[2J")
        (asked,) = wire.requests
        assert asked["method"] == "elicitation/create" and "smash" in asked["params"]["message"]
        assert (
            asked["params"]["message"].isprintable() and "\\u202e\\u001b[2J" in asked["params"]["message"]
        )  # S07, S42
        assert bool(result.get("isError")) is not is_yes
    assert any(b"tools/call" in line for line in seen(toy)) is is_yes
    assert [e["state"] for e in effects(cli)] == (["done"] if is_yes else [])
    assert not any(b'"allow"' in line for line in seen(toy))  # the answer was for us
    assert cli("approvals", "--json").json["approvals"] == []  # a no is an answer, too


@pytest.mark.parametrize("given", [{"action": "decline"}, {"action": "accept", "content": {"allow": False}}])
def test_a_persons_no_is_written_down_and_told(given: dict[str, object], gateway: Gateway, toy: Path, cli: Cli) -> None:
    with gateway(*TOY) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: given
        result = wire.call("smash")
        assert result["isError"] and "a person said no" in result["content"][0]["text"]
        assert "approve" not in result["content"][0]["text"]
        assert cli("approvals", "--json").json["approvals"] == []
        wire.asked = lambda _: {"action": "cancel"}  # nobody answered: it can be answered in a terminal still
        assert "reprieve approve" in wire.call("smash")["content"][0]["text"]
    assert len(cli("approvals", "--json").json["approvals"]) == 1 and effects(cli) == []


UNCLEAR = (
    b'{"jsonrpc":"2.0","id":"a","method":"ping","method":"tools/call","params":{"name":"smash"}}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"ping","x":\r{"jsonrpc":"2.0","id":2,"method":"tools/call"}\r}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"smash"}}{}\n',
    b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"tools/call"}]\n',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":["smash"]}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"smash","name":"look"}}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"smash","arguments":{"n":NaN}}}\n',
    b'"tools/call"\n',
    b"\xff\xfe tools/call\n",
    b"[" * 200_000 + b"\n",
)


def test_s41_what_could_be_read_in_two_ways_does_not_reach_the_server(gateway: Gateway, toy: Path) -> None:
    with gateway(*TOY) as wire:
        wire.send(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"smash"}}\n')  # nobody to answer to
        for number, line in enumerate(UNCLEAR):
            wire.send(line)
            until(lambda number=number: len(wire.lines) > number, "it is answered")
            assert json.loads(wire.lines[-1])["error"]["code"] in (-32700, -32600, -32602), line[:100]
        wire.answer(wire.ask("ping"))
        assert len(seen(toy)) == 1 and b"ping" in seen(toy)[0]  # the one after all these


def test_s03_pairs_of_tools_take_each_other_back_after_a_persons_yes(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, a_persons_terminal: None
) -> None:
    """S03: the inverse is shown whole, bound to its hash, and starts the server that the gateway was started with."""
    cli("checkpoint", "base")
    with gateway(*TOY, options=("--env", "TOY")) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: {"action": "accept", "content": {"allow": True}}
        assert wire.call("create_item", name="x")["structuredContent"]["item"]["id"] == "item-1"
    (effect,) = effects(cli)
    inverse = effect["inverse"]
    assert isinstance(inverse, dict) and inverse["tool"] == "delete_item" and effect["class"] == "compensable"
    assert inverse["arguments"] == {"item_id": "item-1"} and inverse["server"]["set"] == {"TOY": str(toy)}
    asked = cli("rollback", "base", "--yes", "--json", check=False)
    assert asked.code == 5 and json.loads((toy / "items.json").read_text()) == {"item-1": {"name": "x"}}
    code, screen = at_terminal("approve", asked.json["error"]["approval"], cwd=project, answer="y\n")
    assert code == 0 and "delete_item" in screen and "toy_server.py" in screen
    assert cli("rollback", "base", "--yes", "--json").json["report"]["effects"][0]["state"] == "undone"
    assert json.loads((toy / "items.json").read_text()) == {}


def test_an_inverse_that_ends_with_an_error_is_left_to_a_person_and_not_called_again(
    gateway: Gateway, toy: Path, cli: Cli, project: Path, a_persons_terminal: None
) -> None:
    """It may have done a part of its work, as any call that fails."""
    cli("checkpoint", "base")
    with gateway(*TOY, options=("--env", "TOY")) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: {"action": "accept", "content": {"allow": True}}
        wire.call("create_item", name="x")
    (toy / "items.json").write_text("{}")
    asked = cli("rollback", "base", "--yes", "--json", check=False)
    assert at_terminal("approve", asked.json["error"]["approval"], cwd=project, answer="y\n")[0] == 0
    report = cli("rollback", "base", "--yes", "--json", check=False).json["report"]
    assert report["effects"][0]["state"] == "manual" and "no such item" in report["effects"][0]["detail"]
    cli("rollback", "base", "--yes", check=False)
    assert sum(b"delete_item" in line for line in seen(toy)) == 1


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"resultType": "input_required", "inputRequests": {}, "requestState": "s"}, "asked back"),
        ({"task": {"taskId": "t1", "status": "working"}}, "the task 't1'"),
        ({"resultType": "of a later year", "content": []}, "not complete"),
    ],
)
def test_an_inverse_that_was_answered_but_not_done_is_left_to_a_person(
    result: dict[str, object], why: str, gateway: Gateway, toy: Path, cli: Cli, project: Path, a_persons_terminal: None
) -> None:
    """No undo is claimed that did not happen: a server may want a yes of its own, or do it later."""
    cli("checkpoint", "base")
    with gateway(*TOY, options=("--env", "TOY")) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: {"action": "accept", "content": {"allow": True}}
        wire.call("create_item", name="x")
    (toy / "unfinished").write_text(json.dumps(result))
    asked = cli("rollback", "base", "--yes", "--json", check=False)
    assert at_terminal("approve", asked.json["error"]["approval"], cwd=project, answer="y\n")[0] == 0
    report = cli("rollback", "base", "--yes", "--json", check=False)
    assert report.code and [e["state"] for e in report.json["report"]["effects"]] == ["manual"]
    assert why in report.json["report"]["effects"][0]["detail"] and "item-1" in (toy / "items.json").read_text()


def test_a_failed_call_and_one_called_off(gateway: Gateway, toy: Path, cli: Cli) -> None:
    with gateway(*TOY) as wire:
        wire.hello(elicitation={})
        wire.asked = lambda _: {"action": "accept", "content": {"allow": True}}
        assert wire.call("fail")["content"][0]["text"] == "it failed"
        id = wire.ask("tools/call", {"name": "slow", "arguments": {}})
        until((toy / "began").exists, "the server has begun")
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        wire.put(note)
        until(lambda: effects(cli)[0]["state"] == "unknown", "the effect is unknown")
        assert "called it off" in str(effects(cli)[0]["detail"])
        (toy / "go").write_text("")
        wire.answer(id)
        until(lambda: json.dumps(note).encode() + b"\n" in seen(toy), "the note has passed")
    slow, fail = effects(cli)
    assert slow["state"] == "done"  # as the server said in the end
    assert fail["state"] == "unknown" and "it failed" in str(fail["detail"])  # part of it may have been done


def test_sigkill_in_the_middle_of_a_call_leaves_an_unknown_effect_that_a_rollback_names(
    gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    rule(tmp_path)
    cli("checkpoint", "base")
    wire = gateway(*TOY)
    wire.hello()
    wire.ask("tools/call", {"name": "slow", "arguments": {"token": "sk-canary0123456789abcdef"}})
    until((toy / "began").exists, "the server is at it")
    assert effects(cli)[0]["state"] == "intent"  # the call was under way, and nothing has answered it
    wire.process.send_signal(signal.SIGKILL)
    wire.process.wait()
    (toy / "go").write_text("")
    (effect,) = effects(cli)
    assert effect["state"] == "unknown" and effect["description"] == "slow"
    report = cli("rollback", "base", "--yes", "--json", check=False).json["report"]
    assert [(e["id"], e["state"]) for e in report["effects"]] == [(effect["id"], "manual")]


def test_a_server_that_ends_in_the_middle_of_a_call_leaves_its_effect_unknown(
    gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    rule(tmp_path)
    with gateway(*TOY) as wire:
        wire.hello()
        wire.ask("tools/call", {"name": "slow", "arguments": {}})
        until((toy / "began").exists, "the server is at it")
        children = Path(f"/proc/{wire.process.pid}/task/{wire.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert wire.process.wait(20) == 128 + signal.SIGKILL  # passed on
    (effect,) = effects(cli)
    assert effect["state"] == "unknown" and "server ended" in str(effect["detail"])


def test_s41_arguments_that_nobody_can_write_down_end_nothing(
    gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    """Half a character, and a list in a list in a list: done and journaled, or refused; the next call goes on."""
    rule(tmp_path)
    with gateway(*TOY) as wire:
        wire.hello()
        line = b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"smash","arguments":{"x":%s}}}\n'
        for text in (b'"\\ud800"', b"[" * 400 + b"]" * 400, b"[" * 900 + b"]" * 900, b"1e999"):
            wire.send(line % text)
            found = wire.answer("a")["result"]
            assert bool(found.get("isError")) is (len(text) > 1000), text
        wire.send(line % (b"9" * 5000))
        assert wire.answer(None)["error"]["code"] == -32700
        assert not wire.call("smash", fine=1).get("isError")
    done = [json.loads(line) for line in seen(toy) if b"tools/call" in line]
    assert len([e for e in effects(cli) if e["state"] == "done"]) == len(done)  # what left is in the journal


def test_secrets_in_arguments_are_not_kept(gateway: Gateway, toy: Path, cli: Cli, home: Path, tmp_path: Path) -> None:
    rule(tmp_path)
    canaries = ("hunter2-canary-one", "sk-canarytwo0123456789abcdef", "canary-three-xyz")
    with gateway(*TOY) as wire:
        wire.hello()
        assert not wire.call(
            "smash", password=canaries[0], text=f"key {canaries[1]}", url=f"http://u:{canaries[2]}@h/"
        ).get("isError")
    assert effects(cli)[0]["state"] == "done"
    for path in home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(canary.encode() in data for canary in canaries), path


def test_without_a_checkpoint_or_an_intent_there_is_no_call(
    gateway: Gateway, toy: Path, cli: Cli, home: Path, tmp_path: Path
) -> None:
    """Fails closed, and says whom to ask; switched off it says so and passes everything."""
    rule(tmp_path)
    cli("checkpoint", "base")
    with gateway(*TOY) as wire:
        wire.hello()
        for broken in (home / "effects.db", home / "store.db"):
            kept = broken.read_bytes() if broken.exists() else b""
            broken.write_bytes(b"this is no database" * 300)
            result = wire.call("smash")
            assert result.get("isError") and "Ask the user" in result["content"][0]["text"], broken
            assert "REPRIEVE_DISABLED" not in str(result) and "config" not in str(result)
            assert result["structuredContent"]["error"]["code"].startswith("store_")
            assert not any(b"tools/call" in line for line in seen(toy))
            broken.write_bytes(kept) if kept else broken.unlink()
    with gateway(*TOY, env={"REPRIEVE_DISABLED": "1"}) as wire:
        wire.hello()
        assert not wire.call("smash").get("isError")
    assert b"switched off" in wire.errors


def test_a_folder_that_cannot_be_a_workspace_is_told_at_the_start(home: Path, toy: Path) -> None:
    from support.mcpwire import GATEWAY

    with Wire((*GATEWAY, "-C", "/", "--", *TOY), cwd=Path("/")) as wire:
        assert wire.process.wait(20) in (3, 5)
    assert b"Error" in wire.errors


TWICE = (
    b'{"jsonrpc":"2.0","id":"a","Method":"tools/call","params":{"name":"smash"}}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"ping","METHOD":"tools/call","params":{"name":"smash"}}\n',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"look","Name":"smash"}}\n',
    '{"jsonrpc":"2.0","id":"a","method":"tools/call","paramſ":{"name":"smash"},"params":{"name":"look"}}\n'.encode(),
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"look","arguments":{"path":1,"Path":2}}}\n',
    b'[{"jsonrpc":"2.0","id":"a","METHOD":"tools/call","params":{"name":"smash"}}]\n',
    '{"jsonrpc":"2.0","id":"a","method":"ping"}\n'.encode("utf-16-be").replace(b"\n", b"") + b"\n",
    b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":"\xed\xa0\x80"}}\n',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":"a","method":"ping"}\n',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1.0,"method":"ping"}]\n',
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n',
)


def test_s41_a_reader_that_does_not_mind_capitals_finds_no_call_that_we_missed(gateway: Gateway, toy: Path) -> None:
    """Go's and C#'s readers take "Method" for "method", and the later of two for the one that counts."""
    with gateway(*TOY) as wire:
        for number, line in enumerate(TWICE):
            wire.send(line)
            until(lambda number=number: len(wire.lines) > number, "it is answered")
            assert json.loads(wire.lines[-1])["error"]["code"] in (-32700, -32600), line[:100]
        wire.answer(wire.ask("ping"))
        assert len(seen(toy)) == 1 and b"ping" in seen(toy)[0]


def test_s01_the_answer_to_one_request_is_not_that_to_another(
    gateway: Gateway, toy: Path, cli: Cli, tmp_path: Path
) -> None:
    """An id of a call that is under way is not given again, however it is written; also not when it was called off."""
    rule(tmp_path)
    with gateway(*TOY) as wire:
        wire.hello()
        wire.put({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "slow"}})
        until((toy / "began").exists, "the server is at it")
        for id, method in ((7, "ping"), (7.0, "ping"), (7, "tools/call")):
            wire.put({"jsonrpc": "2.0", "id": id, "method": method, "params": {"name": "look"}})
            assert wire.answer(id)["error"]["code"] == -32600
        wire.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        wire.put({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "smash"}})
        assert wire.answer(7)["error"]["code"] == -32600
        wire.put({"jsonrpc": "2.0", "id": "7", "method": "ping"})  # another one
        (toy / "go").touch()
        assert "result" in wire.answer("7")
        wire.put({"jsonrpc": "2.0", "id": 8.0, "method": "tools/call", "params": {"name": "smash"}})
        assert "result" in wire.answer(8.0)
    assert [e["state"] for e in effects(cli)] == ["done", "done"]


def test_what_a_server_said_of_a_tool_is_asked_again_when_its_list_changed(
    gateway: Gateway, toy: Path, cli: Cli
) -> None:
    with gateway(*TOY) as wire:
        wire.hello()
        assert not wire.call("look").get("isError")
        (toy / "turned").touch()  # from now on it does not say that it only reads
        wire.answer(wire.ask("turn"))
        refused = wire.call("look")
        assert refused["isError"] and refused["structuredContent"]["error"]["class"] == "irreversible"
        assert not wire.call("talk", quiet=True).get("isError")
    assert effects(cli) == []


def test_s15_words_that_no_header_can_hold_are_not_sent() -> None:
    """They come from a client or a server; the gateway's thread that sends goes on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/mcp"
        for value in ("a\r\nX-Evil: 1", "\u4e00"):
            with pytest.raises(Unanswered) as caught:
                send("POST", url, {"Mcp-Method": value}, b"{}", timeout_s=5)
            assert not caught.value.is_sent
            taken, _ = server.accept()
            with taken:
                assert taken.recv(100) == b""
