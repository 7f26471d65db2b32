"""`reprieve redo`."""

from __future__ import annotations

from pathlib import Path

from support import Cli
from support.desk import Desk


def test_it_brings_back_what_a_rollback_took(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("the agent's")
    cli("rollback")
    answer = cli("redo", "--json").json
    assert answer["report"]["restored"] == ["README.md"]
    assert (project / "README.md").read_text() == "the agent's"


def test_it_says_how_to_take_itself_back(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("the agent's")
    cli("rollback")
    command = cli("redo", "--json").json["report"]["redo"].split()
    assert command[:2] == ["reprieve", "rollback"]
    cli(*command[1:])
    assert (project / "README.md").read_text().startswith("# A project")


def test_it_repeats_over_many_levels(cli: Cli, project: Path) -> None:
    for number in range(4):
        (project / "n").write_text(str(number))
        cli("checkpoint", f"n{number}")
    for number in (2, 1, 0):
        cli("rollback", f"n{number}")
    seen = []
    for _ in range(3):
        cli("redo")
        seen.append((project / "n").read_text())
    assert seen == ["1", "2", "3"]


def test_an_edit_made_since_is_a_conflict_and_stays(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("the agent's")
    cli("rollback")
    (project / "README.md").write_text("mine")
    result = cli("redo", "--json", check=False)
    assert result.code == 4
    assert result.json["error"]["code"] == "conflict"
    assert result.json["error"]["conflicts"] == ["README.md"]
    assert (project / "README.md").read_text() == "mine"
    plain = cli("redo", check=False)
    assert plain.err.startswith("Error: ") and "README.md" in plain.err


def test_nothing_to_redo_is_exit_2(cli: Cli) -> None:
    cli("checkpoint")
    result = cli("redo", check=False)
    assert result.code == 2
    assert "nothing to redo" in result.err


def test_a_dry_run_touches_nothing(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("the agent's")
    cli("rollback")
    assert cli("redo", "--dry-run", "--json").json["plan"]["actions"][0]["path"] == "README.md"
    assert (project / "README.md").read_text().startswith("# A project")


def test_one_more_name_of_a_file_is_the_same_file_again(cli: Cli, project: Path) -> None:
    """The other names only change their mode on the way: they are there to be linked to."""
    (project / "one").write_text("one file\n")
    (project / "two").hardlink_to(project / "one")
    cli("checkpoint")
    (project / "src" / "three").hardlink_to(project / "one")
    (project / "one").chmod(0o600)
    cli("rollback")
    cli("redo")
    assert len({(project / name).stat().st_ino for name in ("one", "two", "src/three")}) == 1


def test_an_index_that_git_status_refreshed_does_not_stand_in_the_way(cli: Cli, project: Path) -> None:
    """A prompt runs `git status` after every command; what is staged is not changed by that."""
    with Desk(project) as desk:
        desk.sh("git init -q . && git add README.md && git commit -qm one")
        cli("checkpoint", "start")
        cli("run", "--", "git", "add", "src")
        staged = desk.sh("git diff --cached --stat")
        cli("rollback", "start")
        (project / "README.md").touch()
        refreshed = (project / ".git" / "index").read_bytes()
        desk.sh("git status")
        assert (project / ".git" / "index").read_bytes() != refreshed
        cli("redo")
        assert desk.sh("git diff --cached --stat") == staged != ""
        cli("rollback", "start")
        desk.sh("git add data.bin")
        assert cli("redo", check=False).code == 4


def test_a_file_put_into_a_folder_that_has_to_make_way_is_a_conflict_and_nothing_moves(cli: Cli, project: Path) -> None:
    cli("run", "--", "sh", "-c", "rm -r src && echo 'a file now' > src && echo theirs > README.md")
    cli("rollback")
    (project / "src" / "mine").write_text("mine")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert "conflict" in cli("redo", "--dry-run").out
    result = cli("redo", "--json", check=False)
    assert result.code == 4
    assert result.json["error"]["conflicts"] == ["src"]
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    (project / "src" / "mine").unlink()
    cli("redo")
    assert (project / "src").read_text() == "a file now\n"


def test_a_folder_that_should_go_stays_with_what_was_put_into_it_and_is_named(cli: Cli, project: Path) -> None:
    cli("run", "--", "rm", "-r", "src")
    cli("rollback")
    (project / "src" / "new").mkdir()
    (project / "src" / "new" / "mine").write_text("mine")
    promised = cli("redo", "--dry-run", "--json").json["plan"]
    answer = cli("redo", "--json").json
    assert [kept["path"] for kept in answer["report"]["kept"]] == [kept["path"] for kept in promised["kept"]]
    assert {kept["path"]: kept["reason"] for kept in answer["report"]["kept"]} == {
        "src": "holds something that stays",
        "src/new": "made since the rollback",
    }
    assert answer["report"]["conflicts"] == []
    assert [path for path in (project / "src").rglob("*") if path.is_file()] == [project / "src" / "new" / "mine"]
