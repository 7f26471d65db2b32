"""A tree that somebody else prepared cannot make us act: no store, journal or setting inside it is believed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from support import Cli
from support.acts import checkpoint, rollback
from support.tree import fingerprint


@pytest.fixture
def foreign_store(cli: Cli, project: Path, home: Path, tmp_path: Path) -> Path:
    """A real store with a checkpoint of this very tree, made by somebody else; our own store is empty again."""
    checkpoint(cli, "planted")
    made = tmp_path / "foreign"
    home.rename(made)
    return made


PLACES = [".reprieve", "reprieve", ".local/state/reprieve", ".undo"]


def assert_no_history(cli: Cli, project: Path, env: dict[str, str | None]) -> None:
    """There is nothing to go back to, and nothing was touched in finding that out."""
    before = fingerprint(project)
    for args in (("rollback",), ("rollback", "planted"), ("redo",), ("revert", "README.md")):
        answer = cli(*args, check=False, env=env)
        assert answer.code in (2, 3), answer
    assert "planted" not in cli("log", "--json", check=False, env=env).out
    assert fingerprint(project) == before


@pytest.mark.parametrize("place", PLACES)
def test_WB09_S22_a_store_that_came_with_the_tree_is_not_used(
    cli: Cli, project: Path, foreign_store: Path, place: str
) -> None:
    """A clone or archive that ships a store of our own format has no history for us, and nothing is rolled back."""
    (project / "made-later.txt").write_text("a file that the planted history does not know\n")
    shutil.copytree(foreign_store, project / place, dirs_exist_ok=True)
    assert_no_history(cli, project, {})


def test_S22_not_even_in_the_default_place_relative_to_the_tree(
    cli: Cli, project: Path, foreign_store: Path, tmp_path: Path
) -> None:
    """Without REPRIEVE_HOME the store is the person's, also when the tree holds what looks like a state directory."""
    person = tmp_path / "person"
    person.mkdir()
    shutil.copytree(foreign_store, project / ".local" / "state" / "reprieve")
    assert_no_history(cli, project, {"REPRIEVE_HOME": None, "XDG_STATE_HOME": None, "HOME": str(person)})


def test_WB09_a_journal_of_another_tool_deletes_nothing(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Undo records inside the tree that name a path outside it are files like any other."""
    victim = tmp_path / "victim"
    victim.write_text("still here\n")
    (project / ".undo").mkdir()
    rows = [
        {"type": "checkpoint", "id": "cp001", "label": "x", "ts": 0},
        {
            "type": "effect",
            "seq": 1,
            "checkpoint": "cp001",
            "ts": 0,
            "effect": {"kind": "path_create", "path": str(victim)},
        },
    ]
    (project / ".undo" / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    checkpoint(cli)
    (project / "README.md").write_text("wrecked\n")
    rollback(cli)
    assert victim.read_text() == "still here\n"
    assert (project / "README.md").read_text() == "# A project\n\nIt does things.\n"


def test_WB09_a_setting_in_the_tree_cannot_point_at_a_store(
    cli: Cli, project: Path, home: Path, foreign_store: Path
) -> None:
    """reprieve.toml may not name a store, a command or a hook; the planted store stays unread and unchanged."""
    shutil.copytree(foreign_store, project / "planted")
    (project / "reprieve.toml").write_text(
        'home = "planted"\nstore = "planted"\nREPRIEVE_HOME = "planted"\n[hooks]\ncheckpoint = "touch pwned"\n'
    )
    planted = fingerprint(project / "planted")
    checkpoint(cli)
    assert (home / "store.db").exists()
    assert fingerprint(project / "planted") == planted
    assert not (project / "pwned").exists()
    assert "planted" not in [entry.get("label") for entry in cli("log", "--json").json["entries"]]


def test_WB09_a_planted_staging_area_is_not_acted_on(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Left-overs that look like an interrupted rollback of ours, shipped with a tree, are files and nothing more."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.txt").write_text("still here\n")
    for name in (".reprieve-stage", ".reprieve-tmp", ".reprieve-restore-0", ".reprieve"):
        (project / name).mkdir()
        (project / name / "0").symlink_to(victim)
        (project / name / "intent").write_text(json.dumps({"delete": [str(victim), "../victim/precious.txt"]}))
    before = fingerprint(project)
    checkpoint(cli)
    (project / "README.md").write_text("wrecked\n")
    rollback(cli)
    assert fingerprint(project) == before
    assert os.listdir(victim) == ["precious.txt"]
