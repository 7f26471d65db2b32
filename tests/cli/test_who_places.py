"""Where things go when an agent's part is taken out: what has no place to go back to is never lost, or silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli

MINE = "a line of the person's\n"


def agent(cli: Cli, script: str, label: str = "agent") -> None:
    cli("run", "--label", label, "--", "sh", "-c", script)


@pytest.fixture
def start(cli: Cli, project: Path) -> str:
    (project / "d").mkdir()
    (project / "d/mine").write_text(MINE)
    return str(cli("checkpoint", "start", "--json").json["checkpoint"]["id"])


def holders(project: Path) -> list[str]:
    """Which files have the person's line."""
    files = (path for path in project.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(project)) for path in files if MINE in path.read_text(errors="replace"))


@pytest.mark.parametrize("move", ["mv -f d/mine src/util.py", "mv d/mine m; rm src/util.py; mv m src/util.py"])
def test_what_was_moved_onto_another_file_is_not_lost_with_its_folder(
    cli: Cli, project: Path, start: str, move: str
) -> None:
    """It can't go back, so the other file's old content can't either: together they are decided by the person."""
    agent(cli, move)
    (project / "d").rmdir()
    (project / "d").write_text("something else\n")
    refused = cli("rollback", start, "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["reasons"] == {"src/util.py": "holds what was at d/mine"}
    cli("rollback", start, "--on-conflict", "keep", check=False)
    assert holders(project) == ["src/util.py"] and (project / "d").read_text() == "something else\n"


def test_what_was_moved_onto_another_file_by_way_of_a_third_is_not_lost_either(
    cli: Cli, project: Path, start: str
) -> None:
    agent(cli, "mv d/mine between", "one")
    agent(cli, "mv -f between src/util.py", "two")
    (project / "d").rmdir()
    (project / "d").write_text("something else\n")
    refused = cli("rollback", start, "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["conflicts"] == ["src/util.py"]


@pytest.mark.parametrize("choice", ["keep", "both"])
def test_a_conflict_that_is_kept_at_the_old_name_keeps_the_new_one(
    cli: Cli, project: Path, start: str, choice: str
) -> None:
    agent(cli, "mv -f d/mine src/util.py; echo x > made")
    (project / "d/mine").write_text("something else\n")
    kept = {k["path"] for k in cli("rollback", start, "--on-conflict", choice, "--json").json["report"]["kept"]}
    assert {"d/mine", "src/util.py"} <= kept
    assert "src/util.py" in holders(project) and (project / "d/mine").read_text() == "something else\n"
    assert not (project / "made").exists()


def test_what_a_person_made_where_an_agent_moved_from_and_deleted_later_is_not_replaced(
    cli: Cli, project: Path
) -> None:
    """Deleted by the one and made again by the other: a conflict, whatever it was called in between."""
    (project / "text").write_text("theirs\n")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "mv text moved", "one")
    agent(cli, "rm moved", "two")
    (project / "text").write_text(MINE)
    refused = cli("rollback", start, "--json", check=False)
    assert refused.code == 4 and refused.json["error"]["conflicts"] == ["text"]
    for choice in ("keep", "merge", "both"):
        cli("rollback", start, "--on-conflict", choice)
        assert "text" in holders(project)
