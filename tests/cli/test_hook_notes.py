"""What an agent is told of rollbacks: everything that is no longer as it left it, nothing else, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli
from support.claude import Claude


@pytest.fixture
def claude(project: Path) -> Claude:
    return Claude(project)


def write(claude: Claude, call: str, path: Path) -> None:
    """A call that writes its name into a file."""
    claude.before(call)
    path.write_text(call)
    claude.after(call)


def note(answer: dict[str, str]) -> str:
    return answer.get("additionalContext", "")


def test_of_what_redo_brought_back_nothing_is_told(claude: Claude, project: Path, cli: Cli) -> None:
    """Every byte is as the agent left it; that it is not would be false."""
    write(claude, "c1", project / "a")
    write(claude, "c2", project / "README.md")
    cli("rollback", "call:c1", "--yes")
    cli("redo")
    assert (project / "README.md").read_text() == "c2"
    assert claude.prompt("next") == {}
    cli("rollback", "call:c1", "--yes")
    cli("redo")
    cli("revert", "a", "--to", "call:c1")
    told = note(claude.prompt("go on"))
    assert "deleted: a" in told
    assert "README.md" not in told
    assert "(revert)" in told


def test_a_redo_after_the_agent_was_told_is_told_too(claude: Claude, project: Path, cli: Cli) -> None:
    write(claude, "c1", project / "a")
    cli("rollback", "call:c1", "--yes")
    assert "deleted: a" in note(claude.prompt("next"))
    cli("redo")
    assert "restored: a" in note(claude.prompt("go on"))
    assert claude.prompt("and on") == {}
