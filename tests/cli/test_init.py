"""`reprieve init`."""

from __future__ import annotations

import os
from pathlib import Path

from support import Cli


def test_it_is_idempotent(cli: Cli, project: Path) -> None:
    first = cli("init", "--json").json["workspace"]
    second = cli("init", "--json").json["workspace"]
    assert first == second
    assert first["root"] == os.path.realpath(project)


def test_it_writes_nothing_into_the_tree(cli: Cli, project: Path) -> None:
    before = sorted(os.listdir(project))
    cli("init")
    assert sorted(os.listdir(project)) == before


def test_a_folder_of_a_workspace_is_protected_already(cli: Cli, project: Path) -> None:
    root = cli("init", "--json").json["workspace"]["root"]
    answer = cli("init", cwd=project / "src")
    assert root in answer.out
    assert "a part of it" in answer.out


def test_it_says_what_to_do_next(cli: Cli) -> None:
    assert "reprieve checkpoint" in cli("init").out
