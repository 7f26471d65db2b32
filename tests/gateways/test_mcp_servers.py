"""The reference servers of the protocol behind the gateway: what they wreck comes back."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

from support import Cli
from support.mcpwire import Wire, until
from support.terminal import at_terminal
from support.tree import fingerprint

Gateway = Callable[..., Wire]


def effects(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli("effects", "--json").json["effects"]
    return found


def test_line_5_one_rollback_brings_back_what_the_filesystem_server_wrecked(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path
) -> None:
    before = fingerprint(project)
    cli("checkpoint", "base")
    with gateway(filesystem_server, str(project)) as wire:
        wire.hello()
        for tool, arguments in (
            ("write_file", {"path": f"{project}/README.md", "content": "gone\n"}),
            ("write_file", {"path": f"{project}/.env", "content": "TOKEN=mine\n"}),
            ("write_file", {"path": f"{project}/new.txt", "content": "new"}),
            ("edit_file", {"path": f"{project}/src/main.py", "edits": [{"oldText": "hello", "newText": "bye"}]}),
            ("create_directory", {"path": f"{project}/made/deep"}),
            ("move_file", {"source": f"{project}/data.bin", "destination": f"{project}/made/deep/data.bin"}),
            ("move_file", {"source": f"{project}/src", "destination": f"{project}/made/src"}),
            ("write_file", {"path": f"{project}/made/src/util.py", "content": ""}),
        ):
            assert not wire.call(tool, **arguments).get("isError"), (tool, wire.lines[-1])
        assert wire.call("read_text_file", path=f"{project}/README.md")["content"][0]["text"] == "gone\n"
        ids = [  # without waiting for each other
            wire.ask("tools/call", {"name": "write_file", "arguments": {"path": f"{project}/p{n}", "content": "x"}})
            for n in range(4)
        ]
        assert not any(wire.answer(id)["result"].get("isError") for id in ids)
    found = effects(cli)
    assert [(e["kind"], e["class"], e["state"], e["undo_state"]) for e in found] == [
        ("mcp", "restorable", "done", "covered")
    ] * 12  # reading is none
    assert fingerprint(project) != before
    report = cli("rollback", "base", "--yes", "--json").json["report"]
    assert report["effects"] == [] and report["not_undone"] == []  # files once, and nothing besides
    assert fingerprint(project) == before


def test_s09_s10_outside_of_the_workspace_the_filesystem_server_needs_a_persons_yes(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """Also by a link, by a way up and by a folder whose name only begins like the project's."""
    (tmp_path / "project-evil").mkdir()
    (project / "way").symlink_to(tmp_path)
    with gateway(filesystem_server, str(tmp_path)) as wire:
        wire.hello()
        for path in (
            tmp_path / "other.txt",
            project / ".." / "other.txt",
            project / "way" / "other.txt",
            tmp_path / "project-evil" / "x",
            "other.txt",  # from the folder that the server was given, as far as anybody knows
        ):
            result = wire.call("write_file", path=str(path), content="x")
            assert result["isError"] and "outside of the workspace" in result["content"][0]["text"], path
            error = result["structuredContent"]["error"]
            assert error["code"] == "refused" and error["class"] == "irreversible" and error["approval"]
        moved = wire.call("move_file", source=f"{project}/README.md", destination=f"{tmp_path}/README.md")
        assert moved["isError"] and (project / "README.md").exists()
    assert effects(cli) == [] and not (tmp_path / "other.txt").exists()


def test_a_gateway_killed_in_the_middle_of_a_call_leaves_its_effect_unknown(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path
) -> None:
    """The server is stopped, so that the call can't be over when the gateway dies; then it goes on and writes."""
    before = fingerprint(project)
    cli("checkpoint", "base")
    wire = gateway(filesystem_server, str(project))
    wire.hello()
    wire.call("list_allowed_directories")
    children = Path(f"/proc/{wire.process.pid}/task/{wire.process.pid}/children").read_text().split()
    server = int(children[0])
    os.kill(server, signal.SIGSTOP)
    try:
        wire.ask("tools/call", {"name": "write_file", "arguments": {"path": f"{project}/README.md", "content": "cut"}})
        until(lambda: [e["state"] for e in effects(cli)] == ["intent"], "the intent is in the journal")
        assert (project / "README.md").read_text() != "cut"
        assert wire.process.poll() is None
        wire.process.send_signal(signal.SIGKILL)
        wire.process.wait()
    finally:
        os.kill(server, signal.SIGCONT)
    until(lambda: (project / "README.md").read_text() == "cut", "the server did what it had been asked")
    (effect,) = effects(cli)
    assert effect["state"] == "unknown" and effect["undo_state"] == "covered"
    cli("rollback", "base", "--yes")
    assert fingerprint(project) == before


def test_memory_outside_of_the_workspace_is_taken_back_by_its_own_tools(
    gateway: Gateway, memory_server: str, cli: Cli, project: Path, tmp_path: Path, a_persons_terminal: None
) -> None:
    """What was there before stays: the answer says what was new."""
    memory = tmp_path / "memory.jsonl"
    env = {"MEMORY_FILE_PATH": str(memory)}
    ada = {"name": "ada", "entityType": "person", "observations": ["old"]}
    eve = {"name": "eve", "entityType": "person", "observations": []}
    with gateway(memory_server, env=env) as wire:
        wire.hello()
        wire.call("create_entities", entities=[ada])
        first = memory.read_text()
        cli("checkpoint", "base")
        assert not wire.call("create_entities", entities=[ada, eve]).get("isError")
        assert not wire.call("add_observations", observations=[{"entityName": "ada", "contents": ["old", "new"]}]).get(
            "isError"
        )
        assert wire.call("delete_entities", entityNames=["ada"])["isError"]  # nobody could bring it back
        assert "eve" in wire.call("read_graph")["content"][0]["text"]
    assert [(e["class"], e["state"], e["inverse"]["tool"]) for e in effects(cli)][:2] == [  # type: ignore[index]
        ("reversible", "done", "delete_observations"),
        ("reversible", "done", "delete_entities"),
    ]
    asked = cli("rollback", "base", "--yes", "--json", check=False)
    assert asked.code == 5 and memory.read_text() != first  # it would start a program: a person looks first
    code, screen = at_terminal("approve", asked.json["error"]["approval"], cwd=project, answer="y\n")
    assert code == 0 and "delete_entities" in screen and memory_server in screen
    report = cli("rollback", "base", "--yes", "--json").json["report"]
    assert [e["state"] for e in report["effects"]] == ["undone", "undone"]
    assert [json.loads(line) for line in memory.read_text().splitlines()] == [
        json.loads(line) for line in first.splitlines()
    ]
    again = cli("rollback", "base", "--yes", "--json").json["report"]
    assert again["effects"] == []  # once


def test_memory_inside_of_the_workspace_comes_back_with_the_files_and_only_once(
    gateway: Gateway, memory_server: str, cli: Cli, project: Path
) -> None:
    memory = project / "memory.jsonl"
    with gateway(memory_server, env={"MEMORY_FILE_PATH": str(memory)}) as wire:
        wire.hello()
        wire.call("create_entities", entities=[{"name": "ada", "entityType": "person", "observations": []}])
        cli("checkpoint", "base")
        first = memory.read_bytes()
        assert not wire.call("delete_entities", entityNames=["ada"]).get("isError")
        assert memory.read_bytes() != first
        assert effects(cli)[0]["undo_state"] == "covered" and effects(cli)[0]["inverse"] is None
        cli("rollback", "base", "--yes")
        assert memory.read_bytes() == first
        assert "ada" in wire.call("read_graph")["content"][0]["text"]  # the running server sees it too


def test_git_commits_made_by_the_git_server_are_taken_back(
    gateway: Gateway, git_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    def git(*args: str, cwd: Path = project) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(["git", *settings, *args], cwd=cwd, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "a")
    git("config", "user.email", "a@example.com")
    git("add", ".")
    git("commit", "-qm", "one")
    (project / "README.md").write_text("two\n")
    head, status = git("rev-parse", "HEAD"), git("status", "--porcelain")
    (tmp_path / "elsewhere").mkdir()
    git("init", "-q", cwd=tmp_path / "elsewhere")
    cli("checkpoint", "base")
    with gateway(git_server) as wire:
        wire.hello()
        assert not wire.call("git_add", repo_path=str(project), files=["README.md"]).get("isError")
        assert not wire.call("git_commit", repo_path=str(project), message="two").get("isError")
        assert not wire.call("git_create_branch", repo_path=str(project), branch_name="b").get("isError")
        refused = wire.call("git_add", repo_path=str(tmp_path / "elsewhere"), files=["."])
        assert refused["isError"] and "Reprieve" in refused["content"][0]["text"]
    assert git("rev-parse", "HEAD") != head
    assert {e["undo_state"] for e in effects(cli)} == {"covered"}
    cli("rollback", "base", "--yes")
    assert git("rev-parse", "HEAD") == head and git("status", "--porcelain") == status
    assert "b" not in git("branch", "--format=%(refname:short)").split()


def test_rows_written_by_the_sqlite_server_are_taken_back(
    gateway: Gateway, sqlite_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    base = project / "data.db"
    with sqlite3.connect(base) as db:
        db.execute("CREATE TABLE t (n)")
        db.execute("INSERT INTO t VALUES (1)")
    db.close()
    cli("checkpoint", "base")
    with gateway(sqlite_server, "--db-path", str(base)) as wire:
        wire.hello()
        assert not wire.call("write_query", query="DELETE FROM t").get("isError")
        assert not wire.call("create_table", query="CREATE TABLE u (n)").get("isError")
    cli("rollback", "base", "--yes")
    with sqlite3.connect(base) as db:
        assert db.execute("SELECT n FROM t").fetchall() == [(1,)]
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    db.close()
    with gateway(sqlite_server, "--db-path", str(tmp_path / "other.db")) as wire:
        wire.hello()
        assert wire.call("create_table", query="CREATE TABLE u (n)")["isError"]
        assert not wire.call("list_tables").get("isError")


def test_a_call_through_the_gateway_is_part_of_the_step_of_the_agents_hook(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path
) -> None:
    before = fingerprint(project)
    target = f"{project}/README.md"
    payload = {"session_id": "s1", "cwd": str(project), "tool_name": "mcp__files__write_file", "tool_use_id": "toolu_1",
               "tool_input": {"path": target, "content": "x"}}  # fmt: skip
    cli("hook", "claude-code", input=json.dumps({**payload, "hook_event_name": "PreToolUse"}))
    with gateway(filesystem_server, str(project)) as wire:
        wire.hello()
        assert not wire.call("write_file", path=target, content="x").get("isError")
    cli("hook", "claude-code", input=json.dumps({**payload, "hook_event_name": "PostToolUse", "tool_response": {}}))
    cli("undo", "call:toolu_1", "--yes")
    assert fingerprint(project) == before


def test_reading_leaves_nothing_on_the_timeline(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path
) -> None:
    cli("checkpoint", "base")
    before = len(cli("log", "--json").json["entries"])
    with gateway(filesystem_server, str(project)) as wire:
        wire.hello()
        assert not wire.call("read_text_file", path=str(project / "README.md")).get("isError")
        assert not wire.call("list_directory", path=str(project)).get("isError")
    assert len(cli("log", "--json").json["entries"]) == before and effects(cli) == []


def test_s09_a_relative_path_is_read_from_the_roots_that_the_client_gave(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.txt").write_text("a person's\n")
    with gateway(filesystem_server, str(project)) as wire:
        wire.asked = lambda _: {"roots": [{"uri": other.as_uri()}]}
        wire.hello(roots={})
        until(lambda: any(r["method"] == "roots/list" for r in wire.requests), "the server asks for the roots")
        until(lambda: str(other) in str(wire.call("list_allowed_directories")), "the server has them")
        result = wire.call("write_file", path="x.txt", content="x")
        assert result["isError"] and "outside of the workspace" in result["content"][0]["text"]
    assert effects(cli) == [] and (other / "x.txt").read_text() == "a person's\n"


def test_s10_a_way_up_behind_a_link_is_not_what_the_server_makes_of_it(
    gateway: Gateway, filesystem_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    """The system reads project/other.txt; the server tidies the path first, and means the file beside the project."""
    (project / "a" / "b").mkdir(parents=True, exist_ok=True)
    (project / "up").symlink_to("a/b")
    (tmp_path / "other.txt").write_text("a person's\n")
    with gateway(filesystem_server, str(tmp_path)) as wire:
        wire.hello()
        result = wire.call("write_file", path=f"{project}/up/../../other.txt", content="x")
        assert result["isError"] and "outside of the workspace" in result["content"][0]["text"]
    assert effects(cli) == [] and (tmp_path / "other.txt").read_text() == "a person's\n"


def test_memory_in_a_relative_file_is_not_in_the_workspace(
    gateway: Gateway, memory_server: str, cli: Cli, project: Path
) -> None:
    """The server puts it beside its own program, wherever it was started."""
    with gateway(memory_server, env={"MEMORY_FILE_PATH": "memory-of-a-test.jsonl"}) as wire:
        wire.hello()
        result = wire.call("delete_entities", entityNames=["nobody"])
        assert result["isError"] and "not known" in result["content"][0]["text"]
    assert effects(cli) == []


def test_s09_a_statement_that_writes_another_file_needs_a_persons_yes(
    gateway: Gateway, sqlite_server: str, cli: Cli, project: Path, tmp_path: Path
) -> None:
    with gateway(sqlite_server, "--db-path", str(project / "data.db")) as wire:
        wire.hello()
        for query in (f"VACUUM INTO '{tmp_path}/copy.db'", f"/* */ aTTach '{tmp_path}/copy.db' AS c"):
            result = wire.call("write_query", query=query)
            assert result["isError"] and "another file" in result["content"][0]["text"]
        assert not wire.call("create_table", query="CREATE TABLE t (n)").get("isError")
    assert [e["undo_state"] for e in effects(cli)] == ["covered"] and not (tmp_path / "copy.db").exists()
