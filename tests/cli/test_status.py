"""`reprieve status`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import Cli
from support.settings import write_accepted


def kinds(cli: Cli, *args: str) -> dict[str, str]:
    return {change["path"]: change["change"] for change in cli("status", "--json", *args).json["changes"]}


def test_nothing_changed(cli: Cli) -> None:
    cli("checkpoint")
    answer = cli("status", "--json").json
    assert (answer["changes"], answer["effects"], answer["gaps"]) == ([], [], [])
    assert "nothing changed" in cli("status").out


def test_every_kind_of_change_has_its_word(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").mkdir()
    (project / "README.md").write_text("x")
    (project / "data.bin").unlink()
    (project / "tool.sh").chmod(0o644)
    (project / "link").unlink()
    (project / "link").mkdir()
    assert kinds(cli) == {
        "new": "created",
        "README.md": "modified",
        "data.bin": "deleted",
        "tool.sh": "mode",
        "link": "type",
    }
    out = cli("status").out
    assert "tool.sh  (0755, now 0644)" in out
    assert "link  (symlink, now directory)" in out
    assert "5 paths changed: " in out


def test_lines_are_counted(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "src" / "main.py").write_text("def main():\n    print('bye')\n    return 1\n\n\nmain()\n")
    (change,) = cli("status", "--json").json["changes"]
    assert (change["added"], change["removed"], change["binary"]) == (2, 1, False)


def test_since_an_older_checkpoint(cli: Cli, project: Path) -> None:
    cli("checkpoint", "one")
    (project / "a").write_text("1")
    cli("checkpoint", "two")
    (project / "b").write_text("2")
    assert kinds(cli) == {"b": "created"}
    assert kinds(cli, "--since", "one") == {"a": "created", "b": "created"}
    assert cli("status", "--since", "one", "--json").json["since"]["label"] == "one"


def test_the_hints_mean_the_checkpoint_that_was_asked_for(cli: Cli, project: Path) -> None:
    id = cli("checkpoint", "one", "-q").out.strip()
    (project / "a").write_text("1")
    cli("checkpoint", "two")
    (project / "b").write_text("2")
    assert cli("status").out.endswith("See the lines: reprieve diff. Take it back: reprieve rollback\n")
    last = cli("status", "--since", "one").out.splitlines()[-1]
    assert last == f"See the lines: reprieve diff {id}. Take it back: reprieve rollback {id}"
    cli(*last.partition("Take it back: reprieve ")[2].split())
    assert not (project / "a").exists() and not (project / "b").exists()


def test_before_the_first_checkpoint_everything_is_unprotected(cli: Cli) -> None:
    cli("init")
    assert "No checkpoint yet" in cli("status").out
    assert cli("status", "--json").json["since"] is None


def test_gaps_are_named(cli: Cli, project: Path) -> None:
    write_accepted(project, 'exclude = ["empty/"]\n')
    cli("checkpoint")
    assert [gap["path"] for gap in cli("status", "--json").json["gaps"]] == ["empty"]
    assert "Not protected (1 path):" in cli("status").out


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_gap(cli: Cli, project: Path) -> None:
    (project / ".env").chmod(0)
    assert [gap["path"] for gap in cli("checkpoint", "--json").json["checkpoint"]["gaps"]] == [".env"]


def test_it_takes_no_checkpoint(cli: Cli, project: Path) -> None:
    cli("checkpoint")
    (project / "new").write_text("x")
    cli("status")
    assert len(cli("log", "--json").json["entries"]) == 1
