"""Commands that Reprieve can't undo and that ran all the same: each is an effect that every answer mentions."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Cli
from support.gated import Agent, agent_at_work
from support.postgres import serving
from support.terminal import at_terminal

DROP = "psql -qc 'drop table invoices'"


@pytest.fixture
def agent(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with agent_at_work(project, monkeypatch) as agent:
        yield agent


@pytest.fixture
def autopilot(cli: Cli) -> None:
    cli("config", "set", "policy.mode", "autopilot")


@pytest.fixture
def invoices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real database with the table `invoices`, which `psql` finds by the environment."""
    with serving() as server:
        server.make("shop").do("CREATE TABLE invoices (x int)")
        for name, value in (("PGHOST", str(server.folder)), ("PGUSER", "postgres"), ("PGDATABASE", "shop")):
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """A real Redis server with one key; the command line of its client."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    socket = tmp_path / "s"
    with subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    ) as server:
        try:
            while subprocess.run(["redis-cli", "-s", socket, "SET", "a", "1"], capture_output=True).returncode:
                time.sleep(0.05)  # a real server starts
            yield f"redis-cli -s {socket}"
        finally:
            server.terminate()


def effects_of(cli: Cli) -> list[tuple[str, str, str]]:
    """(description, class, state) of each effect, oldest first."""
    found = cli("effects", "--json").json["effects"]
    assert all(effect["inverse"] is None for effect in found if effect["class"] == "irreversible")
    return [(effect["description"], effect["class"], effect["state"]) for effect in reversed(found)]


def test_what_a_person_allowed_though_it_can_t_be_undone_is_reported_as_not_undone(
    agent: Agent, cli: Cli, project: Path, invoices: None, redis: str
) -> None:
    """A dropped table and a flushed Redis: effects, status, rollback and undo all mention them."""
    cli("checkpoint", "base")
    flush = f"{redis} flushall"
    for call, command in (("c1", DROP), ("c2", flush)):
        assert agent.asks(command, call)[0] == "ask"
        subprocess.run(command, shell=True, cwd=project, check=True, capture_output=True)
        agent.ran(command, call)
    dropped = ("psql -qc drop table invoices", "irreversible", "done")
    assert effects_of(cli) == [dropped, (flush, "irreversible", "done")]
    assert "can't be undone" in cli("effects").out
    assert "drop table invoices" in cli("status", "--since", "base").out
    assert "drop table invoices" in cli("rollback", "base", "--dry-run").out
    undone = cli("undo", "call:c1", "--yes", "--json", check=False)
    assert undone.code == 6 and [e["state"] for e in undone.json["report"]["effects"]] == ["irreversible"]
    back = cli("rollback", "base", "--yes", check=False)
    assert back.code == 6 and "drop table invoices" in back.out and "flushall" in back.out


def test_a_bare_undo_reports_the_last_step_though_it_changed_no_file(agent: Agent, cli: Cli, project: Path) -> None:
    """The step before it is not undone in its place; the next undo goes on there."""
    agent.asks("make", "c1")
    (project / "README.md").write_text("by the agent")
    agent.ran("make", "c1")
    agent.asks("npm publish", "c2")
    agent.ran("npm publish", "c2")
    assert "npm publish" in cli("undo", "--dry-run").out
    first = cli("undo", "--yes", check=False)
    assert first.code == 6 and "npm publish" in first.out
    assert (project / "README.md").read_text() == "by the agent"
    cli("undo", "--yes")
    assert (project / "README.md").read_text() != "by the agent"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("curl -X DELETE https://example.com/users/1", "curl -X DELETE https://example.com/users/1"),
        ("aws s3 rm s3://bucket/key", "aws s3 rm s3://bucket/key"),
        ("git push --tags", "git push --tags"),
        ("npm publish", "npm publish"),
        ("ssh host rm -rf /srv/data", "rm -rf /srv/data"),
        ("aws s3 rm s3://bucket/$KEY", "aws s3 rm …"),
        ("sudo bash -c 'redis-cli flushall'", "redis-cli flushall"),
        ("curl -s https://example.com > /srv/data", "> /srv/data"),
    ],
)
def test_every_kind_of_irreversible_command_is_recorded(agent: Agent, cli: Cli, command: str, shown: str) -> None:
    assert agent.asks(command)[0] == "ask"
    agent.ran(command)
    assert effects_of(cli) == [(shown, "irreversible", "done")]


def test_of_a_line_each_command_is_recorded_by_itself(agent: Agent, cli: Cli) -> None:
    line = "docker network create net && npm publish && psql -c 'drop table x' && ls"
    assert agent.asks(line)[0] == "ask"
    agent.ran(line)
    assert [description for description, _, _ in effects_of(cli)] == [
        "docker network create net",
        "npm publish",
        "psql -c drop table x",
    ]


def test_what_the_person_refused_did_not_happen(agent: Agent, cli: Cli) -> None:
    cli("checkpoint", "base")
    assert agent.asks(DROP)[0] == "ask"
    agent.was_told_no(DROP)
    assert [state for _, _, state in effects_of(cli)] == ["refused"]
    assert cli("rollback", "base", "--yes").code == 0


@pytest.mark.parametrize(("event", "why"), [("Stop", "end was not reported"), ("PostToolUseFailure", "exit code")])
def test_what_may_have_happened_is_reported_as_that(agent: Agent, cli: Cli, event: str, why: str) -> None:
    """The agent's user may have said no, which most agents don't report; or it failed halfway."""
    cli("checkpoint", "base")
    agent.asks(DROP)
    agent._send(event, DROP, "c1")
    assert [state for _, _, state in effects_of(cli)] == ["unknown"]
    back = cli("rollback", "base", "--yes", check=False)
    assert back.code == 6 and "not known" in back.out and why in back.out


@pytest.mark.parametrize("command", [DROP, "./deploy.sh"])
def test_what_an_approval_let_pass_is_recorded(
    agent: Agent, autopilot: None, cli: Cli, project: Path, command: str
) -> None:
    assert agent.asks(command)[0] == "deny"
    assert effects_of(cli) == []
    (approval,) = cli("approvals", "--json").json["approvals"]
    assert at_terminal("approve", approval["id"], cwd=project, answer="y\n")[0] == 0
    assert agent.asks(command, "c2")[0] == "allow"
    agent.ran(command, "c2")
    assert [(cls, state) for _, cls, state in effects_of(cli)] == [("irreversible", "done")]


def test_what_runs_unasked_because_the_line_is_trusted_is_recorded(agent: Agent, autopilot: None, cli: Cli) -> None:
    line = "./build.sh && npm publish"
    cli("config", "set", "policy.trusted_commands", line)
    assert agent.asks(line)[0] == "allow"
    agent.ran(line)
    assert effects_of(cli) == [("npm publish", "irreversible", "done")]


@pytest.mark.parametrize(
    "command",
    [
        "psql postgresql://me:s3cret99@example.com/shop -c 'drop table x'",
        'TOKEN=s3cret99; curl -X DELETE -H "X: $TOKEN" https://example.com/x',
        "curl -X DELETE -u me:s3cret99 https://example.com/x",
        "redis-cli -a s3cret99 flushall",
    ],
)
def test_no_secret_of_the_line_is_kept(agent: Agent, cli: Cli, home: Path, command: str) -> None:
    assert agent.asks(command)[0] == "ask"
    agent.ran(command)
    (first, *_) = cli("effects", "--json").json["effects"]
    assert "s3cret99" not in json.dumps(first) and "s3cret99" not in cli("show", first["id"]).out
    assert not any(b"s3cret99" in file.read_bytes() for file in home.glob("effects.db*"))


def test_what_comes_back_with_a_tracked_file_is_no_effect(agent: Agent, cli: Cli, tmp_path: Path) -> None:
    cli("track", str(tmp_path / "notes"))
    command = f"curl -s https://example.com > {tmp_path / 'notes'}"
    assert agent.asks(command)[0] == "allow"
    agent.ran(command)
    assert effects_of(cli) == []


@pytest.mark.parametrize("command", [DROP, f'sh -c "{DROP}"', f"env A=1 {DROP}"])
def test_a_run_that_does_something_irreversible_says_so(cli: Cli, project: Path, invoices: None, command: str) -> None:
    cli("checkpoint", "base")
    cli("run", "--label", "agent", "--", *shlex.split(command))
    assert effects_of(cli) == [("psql -qc drop table invoices", "irreversible", "done")]
    assert cli("rollback", "base", "--yes", check=False).code == 6
