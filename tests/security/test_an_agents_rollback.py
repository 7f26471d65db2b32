"""A rollback, undo, redo or revert that an agent starts: it is the agent's, and takes back only an agent's work."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from support import Cli
from support.claude import Claude, entries
from support.terminal import at_terminal

REPRIEVE = (sys.executable, "-m", "reprieve")
WHO = "claude-code:s1"


@pytest.fixture
def claude(cli: Cli, project: Path) -> Claude:
    """In its first turn; the person wrote a file and a line since the prompt."""
    (project / "text").write_text("one\ntwo\nthree\n")
    cli("checkpoint", "base")
    claude = Claude(project)
    claude.prompt("tidy")
    (project / "person.txt").write_text("precious\n")
    with (project / "text").open("a") as file:
        file.write("mine\n")
    return claude


def moves(project: Path) -> list[tuple[str, str]]:
    return [(e.kind, e.actor) for e in entries(project) if e.kind in ("rollback", "undo", "redo", "revert")]


def in_call(claude: Claude, cli: Cli, *words: str, call: str = "c1") -> Any:
    """Run the command line in a call of the agent's, and answer what came of it."""
    claude.before(call)
    result = cli(*words, check=False)
    claude.after(call)
    return result


@pytest.mark.parametrize(
    "words",
    [
        ("rollback", "--everything", "--yes", "base"),
        ("rollback", "--everything", "--yes", "--on-conflict", "theirs", "base"),
        ("rollback", "--only", "person.txt", "--everything", "base"),
        ("rollback", "--actor", "person", "base"),
        ("revert", "--to", "base", "text"),
        ("revert", "--to", "base", "person.txt"),
    ],
)
def test_a_persons_work_stays(claude: Claude, cli: Cli, project: Path, words: tuple[str, ...]) -> None:
    result = in_call(claude, cli, *words)
    assert result.code == 5 and "changed by the user" in result.err, result.err
    assert (project / "person.txt").read_text() == "precious\n" and "mine" in (project / "text").read_text()
    assert moves(project) == []


def test_theirs_does_not_overrule_a_persons_edit(claude: Claude, cli: Cli, project: Path) -> None:
    claude.before("c1")
    (project / "text").write_text("agent\n")
    claude.after("c1")
    (project / "text").write_text("person\n")
    result = in_call(claude, cli, "undo", "call:c1", "--on-conflict", "theirs", call="c2")
    assert result.code == 5 and (project / "text").read_text() == "person\n"


def test_a_persons_undo_is_not_redone(claude: Claude, cli: Cli, project: Path) -> None:
    claude.before("c1")
    (project / "made").write_text("agent\n")
    claude.after("c1")
    cli("undo", "call:c1")
    assert moves(project) == [("undo", "person")]
    assert in_call(claude, cli, "redo", call="c2").code == 5
    assert not (project / "made").exists()


def test_an_agent_takes_its_own_work_back_and_the_log_says_who(claude: Claude, cli: Cli, project: Path) -> None:
    claude.before("c1")
    (project / "made").write_text("agent\n")
    claude.after("c1")
    result = in_call(claude, cli, "undo", "call:c1", call="c2")
    assert result.code == 0, result.err
    assert not (project / "made").exists() and moves(project) == [("undo", WHO)]
    assert in_call(claude, cli, "redo", call="c3").code == 5  # a person may have approved what it would bring back
    assert (project / "person.txt").exists()
    assert f"by {WHO}" in cli("log").out


def test_a_run_takes_its_own_work_back(cli: Cli, project: Path) -> None:
    cli("checkpoint", "base")
    (project / "person.txt").write_text("precious\n")
    inner = shlex.join(REPRIEVE)
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo x > made; {inner} rollback base")
    assert not (project / "made").exists() and (project / "person.txt").exists()
    assert moves(project) == [("rollback", "run:agent")]
    result = cli("run", "--label", "agent", "--", *REPRIEVE, "rollback", "base", "--everything", check=False)
    assert result.code == 5 and (project / "person.txt").exists()


def test_a_person_takes_back_what_an_agents_rollback_did(claude: Claude, cli: Cli, project: Path) -> None:
    """Also where the person approved it: the state then was that from before, so nothing may be hidden by that."""
    words = ("rollback", "--everything", "--yes", "base", "--json")
    asked = in_call(claude, cli, *words).json["error"]["approval"]
    assert at_terminal("approve", asked, cwd=project, answer="y\n")[0] == 0
    assert in_call(claude, cli, *words, call="c2").code == 0
    assert not (project / "person.txt").exists() and moves(project) == [("rollback", WHO)]
    cli("rollback", "turn:1", "--yes")
    assert (project / "person.txt").read_text() == "precious\n"
    assert (project / "text").read_text() == "one\ntwo\nthree\nmine\n"


def test_an_agents_own_rollback_is_not_told_as_the_users(claude: Claude, cli: Cli, project: Path) -> None:
    claude.before("c1")
    (project / "made").write_text("agent\n")
    claude.after("c1")
    claude.before("c2")
    cli("undo", "call:c1")
    assert "an agent moved files" in str(claude.after("c2"))
    cli("redo")
    assert "the user moved files" in str(claude.prompt("go on"))


def test_effects_wait_for_a_person(claude: Claude, cli: Cli, project: Path, tmp_path: Path) -> None:
    cli("record", "command", "--description", "a machine", "--", "touch", str(tmp_path / "undone"))
    for number, words in enumerate((("rollback", "--effects", "--yes", "base"), ("rollback", "--yes", "base"))):
        assert in_call(claude, cli, *words, call=f"c{number}").code == 5
    assert not (tmp_path / "undone").exists()


def test_mail_that_a_person_staged_is_not_cancelled(claude: Claude, cli: Cli) -> None:
    message = ("mail", "stage", "--from", "me@example.org", "--to", "you@example.org", "--subject", "s", "--body", "b")
    held = cli(*message, "--json").json["effect"]["id"]
    asked = in_call(claude, cli, "mail", "cancel", held)
    assert asked.code == 5 and "approve" in asked.err
    own = in_call(claude, cli, *message, "--json", call="c2").json["effect"]["id"]
    assert in_call(claude, cli, "mail", "cancel", own, call="c3").code == 0
    assert [effect["id"] for effect in cli("mail", "pending", "--json").json["effects"]] == [held]
