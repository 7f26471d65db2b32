"""A store that commit 040c750 wrote is read, verified, rolled back and resumed as that commit did it.

Made by tests/fixtures/make_old_store.py. The trees were looked at on disk when their checkpoints were made.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.api import serving
from support.oldreading import FIXTURE, SPACES, OldStore, as_root, is_plain
from support.oldstore import Json, differences
from support.terminal import at_terminal
from support.worlds import scratch_base, xattrs_work

EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
AGENTS = ("CLAUDE", "CODEX", "GEMINI", "CURSOR", "OPENCODE", "AI_AGENT", "REPRIEVE")
pytestmark = pytest.mark.skipif(as_root() is None, reason="the files are root's, and this user may not look like root")


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder, in memory where that keeps all that a file has."""
    fast = scratch_base()
    with tempfile.TemporaryDirectory(prefix="reprieve-old-", dir=fast if xattrs_work(str(fast)) else None) as folder:
        yield Path(folder) / "store"


@pytest.fixture
def store(place: Path) -> OldStore:
    return OldStore(place)


def lines(value: object) -> list[str]:
    """JSON as text, so that a difference is a line."""
    return json.dumps(value, indent=1, sort_keys=True).splitlines()


@pytest.mark.parametrize("space", SPACES)
def test_it_reads_as_it_did(store: OldStore, space: str) -> None:
    """Timeline, differences, effects and threads."""
    found, wanted = store.read(space), EXPECTED[space]
    assert lines(found) == lines({name: wanted[name] for name in found})


def test_verify_finds_nothing(store: OldStore) -> None:
    for space in ("files", "effects"):
        done = store.cli(space, "verify")
        assert done.code == 0, done.out + done.err
    assert store.cli("threads", "thread", "verify").code == 0
    sealed = ("--state", str(store.base / "sealed"))
    assert store.cli("threads", "thread", "verify", *sealed, "--key", "env:KEY").code == 0
    assert store.cli("threads", "thread", "show", "patient", "head", *sealed).code != 0, "readable without its key"


@pytest.mark.parametrize("space", SPACES)
def test_every_old_point_comes_back_and_redo_undoes_that(store: OldStore, space: str) -> None:
    """Every path, type, mode, time, byte, link and hard link."""
    for point in store.points(space):
        before = store.look(space)
        done = store.cli(space, "rollback", point["id"], "--everything", "--files", "--yes")
        assert done.code == 0, done.out + done.err
        assert not differences(point["tree"], restored(store, space), ignore=ignored(store)), point["label"]
        if point["label"] == "start":
            assert (store.base / "outside/settings").read_text() == "colour = red\n"
            assert os.listdir(store.base / "outside/folder") == ["inner"]
        if before != store.look(space):
            done = store.cli(space, "redo")
            assert done.code == 0, done.out + done.err
            assert not differences(before, store.look(space), ignore=ignored(store))


def ignored(store: OldStore) -> tuple[str, ...]:
    """Fields of a tree that the file system does not keep."""
    return () if xattrs_work(str(store.base)) else ("xattrs",)


def restored(store: OldStore, space: str) -> Json:
    """The tree as it is now, without the file that was forgotten: no checkpoint holds it, so it stays."""
    return {path: one for path, one in store.look(space).items() if path != "token.txt"}


def test_one_call_and_one_agents_work_are_taken_out(store: OldStore) -> None:
    """Whose each change was is known from the old timeline alone."""
    done = store.cli("agents", "undo", "call:codex-call-2", "--yes")
    assert done.code == 0, done.out + done.err
    assert not differences(EXPECTED["agents"]["after undo"], is_plain(store.look("agents")))
    done = store.cli("agents", "rollback", "start", "--actor", "claude-code", "--yes")
    assert done.code == 0, done.out + done.err
    assert not differences(EXPECTED["agents"]["after rollback of claude-code"], is_plain(store.look("agents")))


def test_an_old_undo_is_redone(store: OldStore) -> None:
    assert not (store.base / "files/undone.txt").exists()
    done = store.cli("files", "redo")
    assert done.code == 0, done.out + done.err
    assert (store.base / "files/undone.txt").read_text() == "undone\n"


def test_an_old_pin_and_an_old_name_keep_their_checkpoints(store: OldStore) -> None:
    trees = {point["label"]: point["tree"] for point in store.points("files")}
    store.ask("files", "prune", "--keep-last", "1", "--keep-days", "0", "--yes")
    for name, label in (("first", "first"), ("it worked here", "reverted")):
        store.ask("files", "rollback", name, "--everything", "--files", "--yes")
        assert not differences(trees[label], restored(store, "files"), ignore=ignored(store))
    assert store.cli("files", "rollback", "newest 0", "--everything", "--files", "--yes").code != 0, "it was pruned"


def test_an_interrupted_rollback_is_finished_by_the_next_checkpoint(store: OldStore) -> None:
    """It was killed between two files: some have the old content, some the new."""
    (target,) = store.points("broken")
    assert differences(target["tree"], store.look("broken"))
    done = store.cli("broken", "checkpoint", "next")
    assert done.code == 0, done.out + done.err
    assert not differences(target["tree"], store.look("broken"))
    assert store.cli("broken", "verify").code == 0
    with closing(sqlite3.connect(store.home / "store.db")) as db:
        assert db.execute("SELECT count(*) FROM intents").fetchone() == (0,)


def test_old_effects_of_every_kind_are_undone_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(AGENTS)]:
        monkeypatch.delenv(name)  # nobody approves anything below an agent
    with serving() as api:
        api.things |= {id: {"id": id} for id in "123"}
        store = OldStore(place, address=api.url)
        before = {effect["id"]: effect for effect in store.ask("effects", "effects")["effects"]}
        plan = store.ask("effects", "rollback", "before", "--dry-run")["plan"]
        assert not api.done
        planned = [action["effect"] for action in plan["actions"] if action["kind"] == "effect"]
        assert sorted({before[id]["kind"] for id in planned}) == ["command", "http", "mail", "mcp", "sql"]

        waiting = approvals(store)  # that of the old store is over after an hour
        assert store.cli("effects", "rollback", "before", "--yes").code == 5, "an agent's word needs an approval"
        (approval,) = approvals(store) - waiting
        where = {"cwd": store.base / "effects", "env": store.env}
        code, screen = at_terminal("approve", approval, answer="y\n", question="[y", **where)
        assert code == 0, screen
        done = store.cli("effects", "rollback", "before", "--yes", "--json")

        assert done.code == 0, done.out + done.err
        states = {effect["id"]: effect["state"] for effect in done.json["report"]["effects"]}
        wanted = {id: "canceled" if before[id]["kind"] == "mail" else "undone" for id in planned}
        assert {id: states[id] for id in planned} == wanted
        assert api.done == ["DELETE /things/2", "DELETE /things/1"], (
            "newest first; not the undone one, nor the kept one"
        )
        with closing(sqlite3.connect(store.base / "other/accounts.db")) as db:
            assert db.execute("SELECT balance FROM account").fetchall() == [(100,)]
        assert not (store.base / "other/made").exists()
        assert json.loads((store.base / "toy/items.json").read_text()) == {}
        assert not (store.base / "effects/pwned").exists()
        assert (store.base / "effects/README.md").read_text() == "# Effects\n"

        again = store.ask("effects", "rollback", "before", "--yes")["report"]
        assert not again["effects"] and len(api.done) == 2
        store.ask("effects", "verify")


def approvals(store: OldStore) -> set[str]:
    return {approval["id"] for approval in store.ask("effects", "approvals")["approvals"]}


def test_old_threads_go_back_with_their_files(store: OldStore) -> None:
    done = store.cli("threads", "thread", "rollback", "fork", "~1", "--files", "--yes", "--json")
    assert done.code == 0, done.out + done.err
    head = store.ask("threads", "thread", "show", "fork", "head")["state"]
    assert head["values"]["plan"] == {"step": 1}
    assert store.cli("threads", "thread", "verify").code == 0
