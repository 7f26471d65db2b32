"""`reprieve track --remove`: checkpoints that hold a path still put it back, or report that they could not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import Cli

REPRIEVE = f"{sys.executable} -m reprieve"


@pytest.fixture
def rc(tmp_path: Path) -> Path:
    """A file outside the project."""
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "rc"
    path.write_text("precious\n")
    return path


@pytest.fixture
def start(cli: Cli, rc: Path) -> None:
    """It is tracked, and in the checkpoint `start`."""
    cli("track", str(rc))
    cli("checkpoint", "start")


def tracked(cli: Cli) -> list[str]:
    found: list[str] = cli("track", "--json").json["tracked"]
    return found


def not_undone(cli: Cli, *args: str) -> list[str]:
    """What a move that exits with 6 leaves."""
    done = cli(*args, "--json", check=False)
    assert done.code == 6, (done.out, done.err)
    return [gap["path"] for gap in done.json["report"]["not_undone"]]


def test_an_agent_cannot_end_tracking(cli: Cli, start: None, rc: Path) -> None:
    """Its command is refused, and a rollback restores the file."""
    ran = cli("run", "--label", "agent", "--", "sh", "-c", f"{REPRIEVE} track --remove {rc}; echo evil > {rc}")
    assert "agents can't end the protection of a path" in ran.err
    assert tracked(cli) == [str(rc)]
    cli("rollback", "step:agent")
    assert rc.read_text() == "precious\n"


def test_a_rollback_puts_back_what_is_no_longer_tracked(cli: Cli, start: None, rc: Path) -> None:
    """And tracks it again, so that redo has it too."""
    cli("track", "--remove", str(rc))
    rc.write_text("evil\n")
    assert str(rc) in cli("rollback", "start", "--dry-run").out
    back = cli("rollback", "start", "--json").json["report"]
    assert rc.read_text() == "precious\n" and back["restored"] == [str(rc)]
    assert tracked(cli) == [str(rc)]
    cli("redo")
    assert rc.read_text() == "evil\n"
    cli("rollback", "start")
    assert rc.read_text() == "precious\n"


def test_where_an_agent_worked_it_is_reported_unless_everything_goes_back(
    cli: Cli, project: Path, start: None, rc: Path
) -> None:
    """A person's own edits stay, and nobody saw whose this is: that is no reason to call it undone."""
    cli("track", "--remove", str(rc))
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo evil > {rc}; echo x > made")
    assert not_undone(cli, "rollback", "start") == [str(rc)]
    assert rc.read_text() == "evil\n" and not (project / "made").exists()
    cli("rollback", "start", "--everything")
    assert rc.read_text() == "precious\n"


def test_what_is_no_longer_tracked_is_left_alone_by_later_points(cli: Cli, start: None, rc: Path) -> None:
    cli("track", "--remove", str(rc))
    rc.write_text("mine\n")
    cli("rollback")
    assert rc.read_text() == "mine\n" and tracked(cli) == []


def test_what_did_not_change_since_is_no_matter(cli: Cli, project: Path, start: None, rc: Path) -> None:
    cli("track", "--remove", str(rc))
    cli("run", "--label", "agent", "--", "sh", "-c", "echo x > made")
    cli("rollback", "start")
    assert not (project / "made").exists() and tracked(cli) == []


def test_what_an_agent_did_before_it_was_removed_goes_back(cli: Cli, start: None, rc: Path) -> None:
    cli("run", "--label", "agent", "--", "sh", "-c", f"echo evil > {rc}")
    cli("track", "--remove", str(rc))
    cli("rollback", "step:agent")
    assert rc.read_text() == "precious\n"


def test_one_of_several_is_removed(cli: Cli, start: None, rc: Path) -> None:
    other = rc.parent / "other"
    other.write_text("mine\n")
    cli("track", str(other))
    cli("checkpoint", "both")
    cli("track", "--remove", str(rc))
    rc.write_text("evil\n")
    other.write_text("evil\n")
    cli("rollback")  # to the latest checkpoint, which was taken when it was removed
    assert (rc.read_text(), other.read_text()) == ("evil\n", "mine\n")
    cli("checkpoint", "one")
    other.write_text("evil\n")
    cli("rollback", "one")
    assert (rc.read_text(), other.read_text()) == ("evil\n", "mine\n")
    other.write_text("evil\n")
    cli("rollback", "both")
    assert (rc.read_text(), other.read_text()) == ("precious\n", "mine\n")
    assert tracked(cli) == [str(other), str(rc)]
    cli("redo")
    assert (rc.read_text(), other.read_text()) == ("evil\n", "evil\n")


def test_a_folder_that_is_no_longer_tracked_comes_back(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a").write_text("a")
    cli("track", str(folder))
    cli("checkpoint", "start")
    cli("track", "--remove", str(folder))
    (folder / "src" / "a").write_text("evil")
    (folder / "src" / "b").write_text("evil")
    cli("rollback", "start")
    assert (folder / "src" / "a").read_text() == "a" and not (folder / "src" / "b").exists()


def test_what_is_in_a_folder_that_is_gone_is_reported(cli: Cli, start: None, rc: Path) -> None:
    cli("track", "--remove", str(rc))
    cli("checkpoint", "after")
    rc.unlink()
    rc.parent.rmdir()
    cli("rollback", "after")  # which does not hold it
    assert not_undone(cli, "rollback", "start") == [str(rc)]


def test_checkpoints_before_and_after_it_was_tracked_say_nothing_of_it(cli: Cli, project: Path, rc: Path) -> None:
    cli("checkpoint", "before")
    cli("track", str(rc))
    cli("checkpoint", "start")
    cli("track", "--remove", str(rc))
    cli("checkpoint", "after")
    rc.write_text("mine\n")
    (project / "made").write_text("x")
    cli("rollback", "after")
    (project / "made").write_text("x")
    cli("rollback", "before")
    assert rc.read_text() == "mine\n" and not (project / "made").exists()
    cli("rollback", "start", "--everything")
    assert rc.read_text() == "precious\n"


def test_tracked_once_more_it_is_as_unknown_to_checkpoints_in_between(cli: Cli, start: None, rc: Path) -> None:
    cli("track", "--remove", str(rc))
    rc.write_text("mine\n")
    cli("checkpoint", "between")
    cli("rollback", "start")  # tracks it again
    rc.write_text("mine\n")
    cli("checkpoint", "later")
    rc.write_text("evil\n")
    assert "was not tracked yet" in cli("rollback", "between", "--everything").out
    assert rc.read_text() == "evil\n"
    cli("rollback", "later")
    assert rc.read_text() == "mine\n"


def test_the_timeline_says_who_ended_it(cli: Cli, start: None, rc: Path) -> None:
    cli("run", "--label", "agent", "--", "true")  # since then, what happens outside of runs is a person's
    cli("track", "--remove", str(rc))
    newest = cli("log", "--json").json["entries"][0]
    assert newest["label"] == f"stop tracking {rc}" and newest["actor"] == "person"
