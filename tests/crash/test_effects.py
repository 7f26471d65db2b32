"""kill -9 at every call that changes a disk or talks to a server, while effects are made, undone, released, cancelled.

What the server saw is in the journal; nothing that may have happened is taken for not done; no inverse and no held
message is sent twice, however often the command is repeated afterwards.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support import SRC, worlds
from support.api import Api, serving
from support.forkserver import MUTATING, NET, Fault, ForkServer, Ran
from support.sweep import Tally

KILLS = ("kill", "kill_after")
Counted = Callable[[Tally], None]


@pytest.fixture(scope="module")
def actor() -> Iterator[ForkServer]:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("fault injection needs Linux (LD_PRELOAD) and gcc")
    tests = str(Path(__file__).resolve().parents[1])
    server = ForkServer("support.effecting:main", paths=[str(SRC), tests])
    yield server
    server.close()


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


class Stage:
    """A tree and a store that is put back for each strike."""

    def __init__(self, actor: ForkServer, api: Api, base: Path) -> None:
        self.actor, self.api = actor, api
        self.tree, self.template, self.home = base / "tree", base / "template", base / "home"
        self.bank = base / "bank.db"
        self.tree.mkdir()
        (self.tree / "a").write_text("a")
        self.at = self.template
        self.run("base")

    def run(self, *argv: str, fault: Fault | None = None) -> Ran:
        return self.actor.run(argv, cwd=self.tree, env=self.env(), fault=fault, roots=[self.at], timeout=60)

    def env(self) -> dict[str, str]:
        return {"REPRIEVE_HOME": str(self.at), "REPRIEVE_CONFIG": str(self.tree.parent / "none"), "NO_COLOR": "1"}

    def begin(self) -> None:
        """A fresh store, and a server that has seen nothing."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.template, self.home)
        self.at = self.home
        for seen in (self.api.done, self.api.refunds, self.api.requests):
            seen.clear()
        if (self.tree.parent / "made").exists():
            (self.tree.parent / "made").rmdir()
        if self.bank.exists():
            self.fill()
        self.api.keys.clear()
        self.api.things.clear()
        self.api.things["7"] = {"id": "7"}

    def fill(self) -> None:
        """A database in which an agent has credited 10."""
        self.bank.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.bank)) as db, db:
            db.execute("CREATE TABLE account (id, balance)")
            db.execute("INSERT INTO account VALUES (1, 110)")

    def balance(self) -> int:
        with closing(sqlite3.connect(self.bank)) as db:
            return int(db.execute("SELECT balance FROM account").fetchone()[0])

    def states(self) -> list[dict[str, Any]]:
        ran = self.actor.run_resident(["states"], cwd=self.tree, env=self.env())  # it only looks
        assert ran.code == 0, ran
        found: list[dict[str, Any]] = json.loads(ran.out)
        return found

    def strike(self, argv: tuple[str, ...], judge: Callable[[], list[str]], name: str) -> list[Tally]:
        """Kill the command at each of its calls, before and after it, and judge what is left."""
        self.begin()
        mask = MUTATING | NET
        counted = self.run(*argv, fault=Fault("kill", -1, mask=mask))
        assert counted.code == 0, counted
        self.api.settle()
        tallies = []
        for mode in KILLS:
            tally = Tally(f"{name} {mode}")
            for point in range(1, counted.seen + 1):
                self.begin()
                ran = self.run(*argv, fault=Fault(mode, point, mask=mask))
                if not ran.fired and ran.code == 0:
                    continue  # one call less this time: an answer came in one piece
                self.api.settle()
                tally.points += 1
                tally.fired += ran.code == -9 and bool(ran.fired)
                wrong = judge()
                if wrong:
                    tally.unsound.append(f"{name} {mode} at {point} ({ran.call} {ran.path}): " + "; ".join(wrong))
            tallies.append(tally)
        return tallies


@pytest.fixture
def stage(actor: ForkServer, api: Api) -> Iterator[Stage]:
    import tempfile

    base = Path(tempfile.mkdtemp(prefix="reprieve-effects-", dir=worlds.scratch_base()))
    yield Stage(actor, api, base)
    shutil.rmtree(base)


def charges(api: Api) -> int:
    return api.done.count("POST /charges")


def test_bad_case_1_E01_an_effect_is_in_the_journal_whenever_it_left(stage: Stage, counted: Counted) -> None:
    api = stage.api

    def judge() -> list[str]:
        wrong, left = [], charges(api)
        found = stage.states()
        if left and not found:
            wrong.append("the server saw a charge that has no row")
        if any(e["state"] == "done" for e in found) and not left:
            wrong.append("done, and the server saw nothing")
        was = found[0]["state"] if found else ""
        for _ in range(2):
            stage.run("undo")
        api.settle()
        if len(api.refunds) != (was == "done"):
            wrong.append(f"{len(api.refunds)} refunds of a charge that is {was or 'not there'}")
        stage.run("forward", api.url)  # the same call id again
        api.settle()
        if charges(api) > 1:
            wrong.append("charged twice")
        return wrong

    for tally in stage.strike(("forward", api.url), judge, "effect forward"):
        counted(tally)


def test_bad_case_47_E01_E02_an_undo_happens_once_and_goes_on_where_it_was(stage: Stage, counted: Counted) -> None:
    """Two inverses that must not be repeated, one that may: killed anywhere and repeated twice."""
    api, made = stage.api, stage.tree.parent / "made"
    stage.run("forward", api.url)
    stage.run("record", api.url)
    stage.run("command", str(made))

    def judge() -> list[str]:
        wrong = []
        for _ in range(2):
            stage.run("undo")
        api.settle()
        command, thing, charge = stage.states()
        if (command["undo_state"], made.exists()) not in (("undone", True), ("manual", True), ("manual", False)):
            wrong.append(f"the command is {command}, it did {made.exists()}")
        if len(api.refunds) > 1:
            wrong.append(f"{len(api.refunds)} refunds")
        if charge["undo_state"] == "undone" and len(api.refunds) != 1:
            wrong.append("undone, and the server saw no refund")
        if charge["undo_state"] not in ("undone", "manual"):
            wrong.append(f"left as {charge}")
        if thing["undo_state"] != "undone" or api.done.count("DELETE /things/7") != 1:
            wrong.append(f"{thing}, the server did {api.done}")
        return wrong

    for tally in stage.strike(("undo",), judge, "effect undo"):
        counted(tally)


@pytest.mark.parametrize("word", [(), ("idempotent",)])
def test_E01_an_undo_in_a_database_happens_once(stage: Stage, counted: Counted, word: tuple[str, ...]) -> None:
    """Killed anywhere and repeated twice: the credit is taken back once, and who says so without it is found out.

    One that must not be repeated is left to a person once nobody can tell; one that may goes on by its guards.
    """
    stage.fill()
    stage.run("sql", str(stage.bank), *word)

    def judge() -> list[str]:
        after = stage.balance()
        for _ in range(2):
            stage.run("undo")
        (effect,) = stage.states()
        found = (effect["undo_state"], stage.balance())
        if word:  # its guards tell that it was done, which is then nobody's to do
            allowed = [("undone", 100)] + [("undoing", 100)] * (after == 100)
        else:
            allowed = [("undone", 100), ("manual", after)]
        return [] if found in allowed else [f"{found} after a kill that left {after}"]

    for tally in stage.strike(("undo",), judge, "effect undo in a database"):
        counted(tally)


def test_bad_case_3_E09_what_is_released_leaves_once(stage: Stage, counted: Counted) -> None:
    api = stage.api
    stage.run("hold")

    def judge() -> list[str]:
        stage.run("release", api.url)
        stage.run("cancel")
        api.settle()
        (effect,) = stage.states()
        sent, state = charges(api), effect["state"]
        wrong = [f"sent {sent} times"] if sent > 1 else []
        if (state, sent) not in (("done", 1), ("unknown", 0), ("unknown", 1)):
            wrong.append(f"{state}, sent {sent} times")
        return wrong

    for tally in stage.strike(("release", api.url), judge, "effect release"):
        counted(tally)


def test_bad_case_3_what_was_cancelled_never_leaves(stage: Stage, counted: Counted) -> None:
    api = stage.api
    stage.run("hold")

    def judge() -> list[str]:
        (before,) = stage.states()
        stage.run("release", api.url)
        api.settle()
        (after,) = stage.states()
        expected = {"canceled": ("canceled", 0), "held": ("done", 1)}[before["state"]]
        return [] if (after["state"], charges(api)) == expected else [f"{before} then {after}, {charges(api)} sent"]

    for tally in stage.strike(("cancel",), judge, "effect cancel"):
        counted(tally)


@pytest.mark.parametrize("verb", ["record", "hold", "keep"])
def test_bad_case_1_a_row_is_there_or_not_and_the_chain_is_whole(stage: Stage, counted: Counted, verb: str) -> None:
    api = stage.api
    argv = (verb, api.url) if verb == "record" else (verb,)
    if verb == "keep":
        stage.run("record", api.url)

    def judge() -> list[str]:
        found = stage.states()  # raises where the chain is broken
        last = stage.run(*argv)
        wrong = [f"{verb} fails afterwards: {last}"] if last.code else []
        if any(e["state"] not in ("done", "held", "unknown") for e in found):
            wrong.append(f"{found}")
        return wrong

    for tally in stage.strike(argv, judge, f"effect {verb}"):
        counted(tally)


def test_the_sweep_finds_an_effect_that_leaves_before_its_intent(stage: Stage) -> None:
    """A planted bug: without it found, the sweeps above would prove nothing."""
    api = stage.api

    def judge() -> list[str]:
        return ["a charge without a row"] if charges(api) and not stage.states() else []

    tallies = stage.strike(("late", api.url), judge, "planted")
    assert all(tally.unsound for tally in tallies)


def test_the_sweeps_over_effects_have_at_least_1000_points(stage: Stage) -> None:
    """Counted, so that a command that lost its calls does not pass for nothing."""
    api = stage.api
    mask, seen = MUTATING | NET, 0
    before = {"undo": (("forward", api.url), ("record", api.url), ("command", str(stage.tree.parent / "made")))}
    for argv in (("forward", api.url), ("record", api.url), ("hold",), ("release", api.url), ("undo",), ("keep",)):
        stage.begin()
        for first in before.get(argv[0], (("hold",),) if argv[0] == "release" else ()):
            stage.run(*first)
        seen += stage.run(*argv, fault=Fault("kill", -1, mask=mask)).seen
    stage.begin()
    stage.run("hold")
    seen += stage.run("cancel", fault=Fault("kill", -1, mask=mask)).seen
    assert len(KILLS) * seen >= 1000
