"""`reprieve approve`: a person's yes, at a terminal, to one exact action, once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from support import Cli
from support.terminal import at_terminal

MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT")


@pytest.fixture(autouse=True)
def a_persons_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in MARKS:
        monkeypatch.delenv(mark, raising=False)


def test_p_19_wb_31_without_a_terminal_there_is_no_approval(cli: Cli, waiting: str, project: Path) -> None:
    for words in ((), ("--json",), ("--quiet",)):
        result = cli("approve", waiting, *words, input="y\n", check=False)
        assert result.code == 5
    assert cli("rollback", "base", "--yes", check=False).code == 5
    assert not (project / "pwned").exists()


def test_a_person_says_yes_and_exactly_that_is_done_once(cli: Cli, waiting: str, project: Path) -> None:
    code, screen = at_terminal("approve", waiting, cwd=project, answer="y\n")
    assert code == 0 and "touch pwned" in screen
    assert cli("rollback", "base", "--yes").code == 0
    assert (project / "pwned").exists()  # it ran; what it wrote was in no plan, so nobody takes it away
    assert cli("effects", "--json").json["effects"][0]["undo_state"] == "undone"
    assert at_terminal("approve", waiting, cwd=project, answer="y\n")[0] == 5  # used


def test_p_19_an_approval_of_one_action_does_not_admit_another(cli: Cli, waiting: str, project: Path) -> None:
    assert at_terminal("approve", waiting, cwd=project, answer="y\n")[0] == 0
    cli("run", "--label", "more", "--", "sh", "-c",
        "python -m reprieve record command --description more -- sh -c 'touch more'")  # fmt: skip
    result = cli("rollback", "base", "--yes", "--json", check=False)
    assert result.code == 5 and result.json["error"]["approval"] != waiting


def test_no_is_no(cli: Cli, waiting: str, project: Path) -> None:
    assert at_terminal("approve", waiting, cwd=project, answer="n\n")[0] == 5
    assert cli("rollback", "base", "--yes", check=False).code == 5


def test_an_agent_that_opens_a_terminal_is_still_an_agent(cli: Cli, waiting: str, project: Path) -> None:
    code, screen = at_terminal("approve", waiting, cwd=project, answer="y\n", env={"REPRIEVE_RUN": "1"})
    assert code == 5 and "cannot approve itself" in screen
    code, screen = at_terminal("approve", waiting, cwd=project, answer="y\n", env={"CLAUDECODE": "1"})
    assert code == 5 and "cannot approve itself" in screen


@pytest.mark.parametrize(
    "statement",
    ["UPDATE approvals SET state = 'approved'", "UPDATE approvals SET expires_at = expires_at * 2, state = 'approved'"],
)
def test_a_planted_approval_counts_for_nothing(
    cli: Cli, waiting: str, project: Path, home: Path, statement: str
) -> None:
    with sqlite3.connect(home / "effects.db") as db:
        db.execute(statement)
    assert cli("rollback", "base", "--yes", check=False).code == 5


def test_an_unknown_id(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("approve", "zzzz", check=False).code == 2


def test_a_setting_that_asks_always_is_named(cli: Cli) -> None:
    cli("checkpoint", "A")
    cli("config", "set", "policy.approve_undo", "always")
    cli("record", "command", "--description", "d", "--", "true")
    said = cli("rollback", "A", "--yes", check=False).err
    assert "policy.approve_undo is always" in said and "agent's word" not in said
