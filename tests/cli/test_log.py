"""`reprieve log`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reprieve.app.moves import Moves
from reprieve.model.plan import Choices
from reprieve.rollback.execute import begin
from reprieve.store.chain import new_id
from support import Cli
from support.desk import Desk


@pytest.fixture
def history(cli: Cli, project: Path) -> Cli:
    for number in range(5):
        (project / "counter").write_text(str(number))
        cli("checkpoint", f"number {number}")
    return cli


def labels(cli: Cli, *args: str) -> list[str]:
    return [entry["label"] for entry in cli("log", "--json", *args).json["entries"]]


def test_newest_first(history: Cli) -> None:
    assert labels(history) == [f"number {number}" for number in (4, 3, 2, 1, 0)]


def test_at_most_n(history: Cli) -> None:
    assert labels(history, "-n", "2") == ["number 4", "number 3"]
    assert len(labels(history, "-n", "0")) == 5
    assert len(history("log", "-n1").out.splitlines()) == 1


def test_search(history: Cli) -> None:
    assert labels(history, "--search", "number 3") == ["number 3"]
    assert "Nothing found" in history("log", "--search", "xyzzy").out


def test_every_entry_has_its_kind_time_and_actor(history: Cli, project: Path) -> None:
    (project / "counter").write_text("broken")
    history("rollback")
    entries = history("log", "--json").json["entries"]
    assert entries[0]["kind"] == "rollback"
    assert all(entry["id"] and entry["created_at"] and entry["actor"] for entry in entries)


def test_an_empty_timeline_says_how_to_begin(cli: Cli) -> None:
    cli("init")
    assert "reprieve checkpoint" in cli("log").out
    assert cli("log", "--json").json["entries"] == []


def test_pruned_entries_are_shown_only_with_all(history: Cli) -> None:
    history("prune", "--yes", "--keep-last", "2", "--keep-days", "0")
    assert labels(history) == ["number 4", "number 3"]
    assert set(labels(history, "--all")) >= {f"number {number}" for number in range(5)}


def test_a_line_tells_id_kind_age_and_label(history: Cli) -> None:
    line = history("log", "-n", "1").out
    for word in ("checkpoint", "just now", '"number 4"', "1 path changed"):
        assert word in line


@pytest.mark.parametrize("words", [("log",), ("show", "start")])
def test_an_unfinished_rollback_is_mentioned_until_it_is_finished(
    cli: Cli, project: Path, words: tuple[str, ...]
) -> None:
    """`log` and `show` only read; who is told of it by them knows what to type."""
    (project / "text").write_text("good\n")
    cli("checkpoint", "start")
    (project / "text").write_text("bad\n")
    with Desk(project) as desk, desk.ws.store.lock(desk.ws.id):
        seen = desk.ws.capture.look(keep=True)
        plan = Moves(desk.ws, seen).rollback(desk.ws.resolve("start"), choices=Choices())
        begin(desk.ws.capture, plan, seen, new_id=new_id, now_ns=time.time_ns())  # and no further: killed
    assert "was interrupted; 'reprieve status'" in cli(*words).err
    assert cli(*words, "--json").json["ok"] and (project / "text").read_text() == "bad\n"
    assert "was finished" in cli("status").err and (project / "text").read_text() == "good\n"
    assert cli(*words).err == ""
