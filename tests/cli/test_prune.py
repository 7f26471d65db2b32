"""`reprieve prune` and `reprieve gc`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from support import Cli
from support.terminal import at_terminal


@pytest.fixture
def history(cli: Cli, project: Path) -> list[str]:
    ids = []
    for number in range(5):
        (project / "large").write_bytes(os.urandom(300_000))
        ids.append(cli("checkpoint", f"n{number}", "-q").out.strip())
    return ids


def stored(home: Path) -> int:
    return sum(path.stat().st_size for path in (home / "packs").iterdir())


def test_a_dry_run_says_what_would_go(cli: Cli, history: list[str], home: Path) -> None:
    before = stored(home)
    answer = cli("prune", "--dry-run", "--keep-last", "2", "--keep-days", "0", "--json").json
    assert [entry["id"] for entry in answer["pruned"]] == history[:3]
    assert (answer["dry_run"], answer["kept"]) == (True, 2)
    assert stored(home) == before
    assert "Would give up 3 entries" in cli("prune", "--dry-run", "--keep-last", "2", "--keep-days", "0").out


def test_it_frees_bytes_and_keeps_the_rest_usable(cli: Cli, history: list[str], home: Path, project: Path) -> None:
    before, content = stored(home), (project / "large").read_bytes()
    assert cli("prune", "--yes", "--keep-last", "2", "--keep-days", "0", "--json").json["bytes"] > 800_000
    assert stored(home) < before - 800_000
    cli("rollback", "n3")
    cli("rollback", "n4")
    assert (project / "large").read_bytes() == content
    assert cli("rollback", "n1", check=False).code == 2
    assert cli("verify").code == 0


def test_what_is_pinned_or_named_stays(cli: Cli, history: list[str], project: Path) -> None:
    cli("pin", "n0")
    cli("name", "n1", "the good one")
    cli("prune", "--yes", "--keep-last", "1", "--keep-days", "0")
    labels = {entry["label"] for entry in cli("log", "--json").json["entries"]}
    assert labels == {"n0", "the good one", "n4"}
    cli("rollback", "n0")


def test_young_checkpoints_stay_by_default(cli: Cli, history: list[str]) -> None:
    assert cli("prune", "--json").json["pruned"] == []


def test_settings_hold_where_no_option_is_given(cli: Cli, history: list[str]) -> None:
    cli("config", "set", "retention.keep_last", "1")
    cli("config", "set", "retention.keep_days", "0")
    assert len(cli("prune", "--dry-run", "--json").json["pruned"]) == 4
    assert len(cli("prune", "--dry-run", "--keep-last", "3", "--json").json["pruned"]) == 2


def test_a_limit_on_the_whole(cli: Cli, history: list[str], home: Path) -> None:
    cli("prune", "--yes", "--max-bytes", "700kB")
    assert stored(home) <= 700_000
    assert cli("prune", "--max-bytes", "much", check=False).code == 2


def test_at_a_terminal_it_asks(cli: Cli, history: list[str], project: Path) -> None:
    args = ("prune", "--keep-last", "1", "--keep-days", "0")
    assert at_terminal(*args, cwd=project, answer="n\n")[0] == 5
    assert len(cli("log", "--json").json["entries"]) == 5
    assert at_terminal(*args, cwd=project, answer="y\n")[0] == 0
    assert len(cli("log", "--json").json["entries"]) == 1


@pytest.fixture
def moved(cli: Cli, project: Path) -> str:
    """The id of a rollback that took back what was done to a large file, with checkpoints after it."""
    (project / "large").write_bytes(os.urandom(900_000))
    cli("checkpoint", "start")
    (project / "large").write_bytes(os.urandom(900_001))
    cli("rollback", "start")
    for number in range(2):
        (project / "small").write_text(f"{number}")
        cli("checkpoint", f"n{number}")
    entries = cli("log", "--json").json["entries"]
    id: str = next(entry["id"] for entry in entries if entry["kind"] == "rollback")
    return id


def test_a_rollback_goes_together_with_the_point_before_it(cli: Cli, project: Path, moved: str) -> None:
    limits = ("--keep-last", "100", "--keep-days", "0", "--max-bytes", "1000000")
    answer = cli("prune", "--yes", *limits, "--json").json
    assert [entry["kind"] for entry in answer["pruned"]] == ["checkpoint", "checkpoint", "rollback"]
    assert answer["kept"] == 2
    redone = cli("redo", check=False)
    assert (redone.code, "damaged" in redone.err) == (2, False)
    cli("verify")
    cli("rollback", "n0")
    assert (project / "small").read_text() == "0"


def test_a_rollback_that_is_pinned_can_be_redone(cli: Cli, project: Path, moved: str) -> None:
    cli("pin", moved)
    cli("prune", "--yes", "--keep-last", "1", "--keep-days", "0")
    cli("redo")
    assert (project / "large").stat().st_size == 900_001
    cli("verify")


def test_redo_says_that_what_was_before_a_rollback_was_pruned(cli: Cli, home: Path, moved: str) -> None:
    """As stores are where only that point was given up."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as db, db:
        (seq,) = db.execute("SELECT seq - 1 FROM entries WHERE id = ?", (moved,)).fetchone()
        db.execute("INSERT OR REPLACE INTO marks SELECT workspace, ?, 0, 1, '' FROM entries LIMIT 1", (seq,))
    redone = cli("redo", check=False)
    assert redone.code == 2
    assert "was pruned" in redone.err
