"""Where things go when an agent's part is taken out: what has no place to go back to is never lost, or silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import Cli
from support.tree import fingerprint

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


def test_what_had_to_make_room_for_it_is_not_lost_in_turn(cli: Cli, project: Path, start: str) -> None:
    """The other file was moved aside first: if its name is not given back, its new place is its last one."""
    other = (project / "src/util.py").read_text()
    agent(cli, "mv src/util.py src/aside; mv d/mine src/util.py; rmdir d")
    (project / "d").write_text("something else\n")
    cli("rollback", start, "--on-conflict", "keep", check=False)
    assert holders(project) == ["src/util.py"] and (project / "src/aside").read_text() == other


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
        cli("rollback", start, "--on-conflict", choice, check=False)
        assert "text" in holders(project)


@pytest.mark.parametrize("verb", ["rollback", "undo"])
@pytest.mark.parametrize("person", ["rmdir", "rename", "rmtree"])
def test_what_an_agent_deleted_comes_back_with_its_folder_that_a_person_removed(
    cli: Cli, project: Path, verb: str, person: str
) -> None:
    """The person removed what was left of it, and not these files. What they did to the others stays."""
    (project / "d/e").mkdir(parents=True)
    (project / "d/e/mine").write_text(MINE)
    (project / "d/e").chmod(0o750)
    if person != "rmdir":
        (project / "d/other").write_text("other\n")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "rm d/e/mine; chmod 700 d/e; echo x > made")
    if person == "rename":
        (project / "d").rename(project / "d2")
    else:
        (project / "d/other").unlink(missing_ok=True)
        (project / "d/e").rmdir()
        (project / "d").rmdir()
    before = fingerprint(project)
    cli(*((verb, start) if verb == "rollback" else (verb, "step:agent")))
    assert holders(project) == ["d/e/mine"] and (project / "d/e").stat().st_mode & 0o777 == 0o750
    assert not (project / "made").exists() and not (project / "d/other").exists()
    assert (project / "d2/other").exists() == (person == "rename")
    cli("redo")
    assert fingerprint(project) == before


def test_an_empty_folder_of_a_removed_folder_comes_back(cli: Cli, project: Path) -> None:
    (project / "d/e").mkdir(parents=True)
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "rmdir d/e")
    (project / "d").rmdir()
    cli("rollback", start)
    assert (project / "d/e").is_dir()


def test_what_was_moved_onto_another_file_goes_back_into_a_folder_that_a_person_renamed(
    cli: Cli, project: Path, start: str
) -> None:
    """Both come back: the person's file into its folder, and what it had been put over."""
    before = (project / "src/util.py").read_text()
    agent(cli, "rm src/util.py; mv d/mine src/util.py")
    (project / "d").rename(project / "renamed")
    cli("rollback", start)
    assert holders(project) == ["d/mine"] and (project / "src/util.py").read_text() == before


def test_what_was_moved_goes_home_if_its_removed_folder_comes_back_for_another(cli: Cli, project: Path) -> None:
    (project / "d").mkdir()
    (project / "d/a").write_text(MINE)
    (project / "d/z").write_text("z\n")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, "mv d/a src/a; rm d/z")
    (project / "d").rmdir()
    cli("rollback", start)
    assert holders(project) == ["d/a"] and (project / "d/z").read_text() == "z\n"


def test_what_an_agent_deleted_is_named_where_its_folder_is_something_else_now(
    cli: Cli, project: Path, start: str
) -> None:
    """Not undone, with what brings it back."""
    agent(cli, "rm d/mine; echo x > made")
    (project / "d").rmdir()
    (project / "d").write_text("something else\n")
    result = cli("rollback", start, "--json", check=False)
    assert result.code == 6 and not (project / "made").exists()
    (left,) = result.json["report"]["not_undone"]
    command = f"reprieve revert d/mine --to {start}"
    way = f"to have it back: move d away, then {command}"
    assert left == {"path": "d/mine", "reason": f"its directory was replaced by you; {way}"}
    (project / "d").rename(project / "moved")
    cli(*command.split()[1:])
    assert holders(project) == ["d/mine"] and (project / "moved").read_text() == "something else\n"


@pytest.mark.parametrize("deed", ["sed -i s/line/agent/ text", "echo agent > made"])
def test_a_file_that_a_person_edited_and_moved_in_one_go_is_said_to_hold_the_agents_change(
    cli: Cli, project: Path, deed: str
) -> None:
    """Nobody can tell that it is the same file: what may be left of the agent's is named."""
    (project / "text").write_text("a line\nanother\n")
    start = cli("checkpoint", "--json").json["checkpoint"]["id"]
    agent(cli, deed)
    old = project / deed.split()[-1]
    (project / "moved").write_text(old.read_text() + "mine\n")
    old.unlink()
    kept = {k["path"]: k["reason"] for k in cli("rollback", start, "--json").json["report"]["kept"]}
    assert "agent" in (project / "moved").read_text()
    assert kept.pop("moved") == f"changed by you; may hold what run:agent did to {old.name}, which is gone"
    ways = {"text": "changed by run:agent, then deleted by you; its change may live on under another name"}
    assert kept == (ways if old.name == "text" else {})


def test_a_file_that_a_person_only_deleted_is_not_said_to_live_on(cli: Cli, project: Path, start: str) -> None:
    agent(cli, "echo agent >> d/mine", "one")
    (project / "d/mine").unlink()
    kept = {k["path"]: k["reason"] for k in cli("rollback", start, "--json").json["report"]["kept"]}
    assert kept["d/mine"] == "changed by you"
