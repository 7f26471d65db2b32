"""`reprieve revert`."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from support import Cli
from support.terminal import at_terminal


def test_one_file_and_nothing_else(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    before = (project / "README.md").stat()
    for name in ("README.md", "src/util.py"):
        (project / name).write_text("broken")
    report = cli("revert", "README.md", "--json").json["report"]
    assert report["restored"] == ["README.md"]
    assert (project / "README.md").read_text().startswith("# A project")
    assert (project / "README.md").stat().st_mtime_ns == before.st_mtime_ns
    assert (project / "src" / "util.py").read_text() == "broken"


def test_a_deleted_folder(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    for name in ("main.py", "util.py"):
        (project / "src" / name).unlink()
    (project / "src").rmdir()
    (project / "README.md").write_text("broken")
    cli("revert", "src")
    assert sorted(path.name for path in (project / "src").iterdir()) == ["main.py", "util.py"]
    assert (project / "README.md").read_text() == "broken"


def test_a_glob_relative_to_where_one_stands(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    for name in ("src/main.py", "src/util.py", "tool.sh"):
        (project / name).write_text("broken")
    cli("revert", "*.py", cwd=project / "src")
    assert (project / "src" / "util.py").read_text() == "ANSWER = 42\n"
    assert (project / "tool.sh").read_text() == "broken"


@pytest.mark.parametrize("command", [("revert",), ("rollback", "--only")])
@pytest.mark.parametrize("is_gone", [False, True])
def test_the_name_of_a_file_is_no_glob(cli: Cli, project: Path, command: tuple[str, ...], is_gone: bool) -> None:
    for name in ("a[1].txt", "a1.txt"):
        (project / name).write_text("before")
    cli("checkpoint")
    for name in ("a[1].txt", "a1.txt"):
        (project / name).write_text("after")
    if is_gone:
        (project / "a[1].txt").unlink()
    cli(*command, "a[1].txt")
    assert [(project / name).read_text() for name in ("a[1].txt", "a1.txt")] == ["before", "after"]
    cli(*command, "a[0-9].txt")
    assert (project / "a1.txt").read_text() == "before"


def test_only_a_database_has_side_files(cli: Cli, project: Path) -> None:
    names = ("notes", "notes-journal", "notes-wal")
    for name in names:
        (project / name).write_text("before")
    cli("checkpoint")
    for name in names:
        (project / name).write_text("after")
    cli("revert", "notes")
    assert [(project / name).read_text() for name in names] == ["before", "after", "after"]


@pytest.mark.parametrize("named", ["app.db", "*.db"])
@pytest.mark.parametrize("dry", [False, True])
def test_a_database_comes_with_its_side_files(cli: Cli, project: Path, named: str, dry: bool) -> None:
    """What was written since is in the log alone; the old database with that log would be neither."""
    with contextlib.closing(sqlite3.connect(project / "app.db", isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = wal; CREATE TABLE t (x)")
    cli("checkpoint")
    with contextlib.closing(sqlite3.connect(project / "app.db", isolation_level=None)) as db:
        db.execute("INSERT INTO t VALUES (1)")
        shutil.copytree(project, project.parent / "copy")  # as one is that was killed
    for name in ("app.db", "app.db-wal"):
        shutil.copyfile(project.parent / "copy" / name, project / name)
    plan = cli("revert", named, *(("--dry-run",) if dry else ()), "--json").json["plan"]
    assert "app.db-wal" in {action["path"] for action in plan["actions"]}
    with contextlib.closing(sqlite3.connect(project / "app.db")) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (1 if dry else 0,)


def test_to_an_older_checkpoint(cli: Cli, project: Path) -> None:
    cli("checkpoint", "one")
    (project / "README.md").write_text("two")
    cli("checkpoint", "two")
    cli("revert", "README.md", "--to", "one")
    assert (project / "README.md").read_text().startswith("# A project")
    cli("redo")
    assert (project / "README.md").read_text() == "two"


def test_a_name_that_looks_like_an_option(cli: Cli, project: Path) -> None:
    (project / "--json").write_text("good")
    cli("checkpoint")
    (project / "--json").write_text("broken")
    result = cli("revert", "--", "--json")
    assert (project / "--json").read_text() == "good"
    assert result.out.startswith("  ~ restore   --json")


def test_a_dry_run_touches_nothing(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "README.md").write_text("broken")
    assert "report" not in cli("revert", "README.md", "--dry-run", "--json").json
    assert (project / "README.md").read_text() == "broken"


def test_a_path_that_never_was_is_exit_2(cli: Cli) -> None:
    cli("checkpoint")
    assert cli("revert", "no-such-file", check=False).code == 2


def test_a_path_outside_is_exit_2(cli: Cli) -> None:
    cli("checkpoint")
    result = cli("revert", "../elsewhere", check=False)
    assert result.code == 2
    assert "outside the workspace" in result.err


LINES = "".join(f"line {n}\n" for n in range(1, 41))


@pytest.fixture
def three_places(cli: Cli, project: Path) -> Path:
    """A file that was changed in three places since the checkpoint."""
    path = project / "text"
    path.write_text(LINES)
    cli("checkpoint")
    path.write_text(LINES.replace("line 3\n", "A\n").replace("line 20\n", "B\n").replace("line 37\n", "C\n"))
    return path


def test_one_hunk_or_several(cli: Cli, three_places: Path) -> None:
    changed = three_places.read_text()
    cli("revert", "text", "--hunk", "2")
    assert three_places.read_text() == changed.replace("B\n", "line 20\n")
    cli("redo")
    assert three_places.read_text() == changed
    cli("revert", "text", "--hunk", "1", "--hunk", "3")
    assert three_places.read_text() == LINES.replace("line 20\n", "B\n")


def test_all_hunks_give_the_file_back_with_its_time(cli: Cli, three_places: Path) -> None:
    cli("revert", "text", "--hunk", "1", "--hunk", "2", "--hunk", "3")
    assert three_places.read_text() == LINES
    assert cli("status", "--json").json["changes"] == []


def test_hunks_are_counted_as_in_diff(cli: Cli, three_places: Path) -> None:
    shown = cli("diff", "--", "text").out
    assert shown.count("\n@@ ") == 3
    assert "there is no 4" in cli("revert", "text", "--hunk", "4", check=False).err


@pytest.mark.parametrize("argv", ["text README.md --hunk 1", "src --hunk 1", "text --hunk x"])
def test_a_hunk_of_what_has_none_is_refused(cli: Cli, three_places: Path, argv: str) -> None:
    before = three_places.read_text()
    assert cli("revert", *argv.split(), check=False).code == 2
    assert three_places.read_text() == before


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("n\ny\nn\n", "AC"), ("y\nd\n", "BC"), ("n\na\n", "A"), ("?\nn\nn\ny\n", "AB")],
)
def test_places_are_picked_on_a_terminal(cli: Cli, three_places: Path, keys: str, expected: str) -> None:
    """Each place is shown and asked about; a and d answer for the rest, ? explains."""
    code, screen = at_terminal("revert", "text", "--pick", cwd=three_places.parent, answer=keys, question="[y,n,")
    assert code == 0, screen
    assert "place 1 of 3" in screen
    assert "".join(line for line in three_places.read_text().split("\n") if line in ("A", "B", "C")) == expected


def test_picking_nothing_touches_nothing(cli: Cli, three_places: Path) -> None:
    before = three_places.read_text()
    code, screen = at_terminal("revert", "text", "--pick", cwd=three_places.parent, answer="y\nq\n", question="[y,n,")
    assert code == 5 and "nothing was touched" in screen
    assert three_places.read_text() == before


def test_picking_needs_a_terminal(cli: Cli, three_places: Path) -> None:
    assert "--hunk" in cli("revert", "text", "--pick", check=False).err
