"""The journal: what is written before and after an effect, once, in one order, and proven."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.app.finding import open_workspace
from reprieve.app.journals import open_journal
from reprieve.app.workspace import Workspace
from reprieve.effects.journal import Charge, Journal, Place
from reprieve.errors import Refused, Repeated, ReprieveError, StoreCorrupted
from reprieve.model.effect import CLASSES, EffectDraft, worst
from reprieve.store import effectlog
from reprieve.store.home import Home, open_home

INVERSE: dict[str, object] = {"kind": "command", "steps": [{"argv": ["/bin/true"]}], "cwd": "/"}
PLACE = Place(at=1, run="r")


def draft(**fields: object) -> EffectDraft:
    return EffectDraft("command", "compensable", "thing", "did a thing", inverse=INVERSE).replace(**fields)


def test_an_intent_is_there_before_the_outcome_and_both_keys_differ(journal: Journal) -> None:
    begun = journal.begin(draft(), PLACE)
    assert journal.get(begun.id).state == "intent"
    done = journal.finish(begun.id, "done", reply={"id": 7})
    assert (done.state, done.reply, done.inverse) == ("done", {"id": 7}, INVERSE)
    assert done.idem != done.undo_idem and len({done.idem, done.undo_idem, begun.idem}) == 2
    assert journal.get(begun.id) == done


def test_bad_case_1_an_intent_whose_process_died_is_unknown(ws: Workspace, project: Path) -> None:
    """Killed between the intent and the answer: it may have happened, and is never taken for not done."""
    script = (
        "import os, sys; from reprieve.app.finding import open_workspace; from reprieve.app.journals import *\n"
        "from reprieve.effects.journal import Place; from reprieve.model.effect import EffectDraft\n"
        "ws = open_workspace(sys.argv[1]); j = open_journal(ws)\n"
        "print(j.begin(EffectDraft('http', resource='r', description='d'), Place(at=1)).id, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(project)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    journal = open_journal(ws)
    assert journal.get(done.stdout.strip()).state == "unknown"
    journal.log.close()


def test_states_change_by_compare_and_set_only(journal: Journal) -> None:
    held = journal.hold(draft(), PLACE)
    assert journal.cancel(held.id).state == "canceled"
    for change in (journal.release, journal.cancel, journal.start_undo):
        with pytest.raises(Refused):
            change(held.id)
    done = journal.record(draft(), PLACE)
    with pytest.raises(Refused):
        journal.finish(done.id, "refused")
    journal.start_undo(done.id)
    with pytest.raises(Refused, match="undoing"):
        journal.keep(done.id)
    journal.end_undo(done.id, "undone")
    with pytest.raises(Refused, match="undone"):
        journal.start_undo(done.id)


def _race(project: str, id: str, verb: str, start: object, wins: object) -> None:
    with open_workspace(project) as ws:
        journal = open_journal(ws)
        start.wait()  # type: ignore[attr-defined]
        try:
            getattr(journal, verb)(id)
        except ReprieveError:
            return
        wins.put(verb)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verbs", [("release", "cancel"), ("start_undo", "start_undo"), ("cancel", "cancel")])
def test_bad_case_54_of_two_processes_exactly_one_wins(ws: Workspace, project: Path, verbs: tuple[str, str]) -> None:
    context = multiprocessing.get_context("spawn")
    journal = open_journal(ws)
    for _ in range(4):
        held = journal.hold(draft(), PLACE) if "cancel" in verbs else journal.record(draft(), PLACE)
        start, wins = context.Barrier(2), context.Queue()
        both = [context.Process(target=_race, args=(str(project), held.id, verb, start, wins)) for verb in verbs]
        for process in both:
            process.start()
        for process in both:
            process.join()
            assert process.exitcode == 0
        assert wins.get(timeout=5) in verbs
        assert wins.empty()
    journal.log.close()


def test_bad_case_55_two_calls_at_once_cannot_both_take_the_last_of_a_budget(ws: Workspace, journal: Journal) -> None:
    journal.begin(draft(), PLACE, charges=[Charge("messages", 2, 3)])
    with pytest.raises(Refused, match="budget 'messages' is used up: 2 of 3"):
        journal.begin(draft(), PLACE, charges=[Charge("messages", 2, 3)])
    assert len(list(journal.effects())) == 1  # the intent that did not fit is not there either
    other = Place(at=1, run="another run")
    journal.begin(draft(), other, charges=[Charge("messages", 2, 3)])


def test_p_32_the_same_call_id_twice_is_one_effect(journal: Journal) -> None:
    first = journal.begin(draft(call="toolu_1"), PLACE)
    with pytest.raises(Repeated) as caught:
        journal.begin(draft(call="toolu_1"), PLACE)
    assert caught.value.effect == first.id


def test_bad_case_46_a_repeat_of_what_survived_a_rollback_is_recognised(journal: Journal) -> None:
    charge = journal.record(draft(fingerprint="POST /charges 5", inverse=None), PLACE)
    journal.begin(draft(fingerprint="POST /charges 5"), PLACE)  # before a rollback: simply the second one
    journal.survive(charge.id, "irreversible", "no inverse")
    with pytest.raises(Repeated, match="survived a rollback") as caught:
        journal.begin(draft(fingerprint="POST /charges 5"), PLACE)
    assert caught.value.effect == charge.id and caught.value.exit_code == 5
    journal.begin(draft(fingerprint="POST /charges 5"), PLACE, is_fork=True)  # a person said so
    journal.keep(charge.id)
    journal.begin(draft(fingerprint="POST /charges 5"), PLACE)


def _tamper(ws: Workspace, *statements: str) -> None:
    with sqlite3.connect(os.path.join(ws.home, "effects.db")) as db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE rows SET body = replace(body, '/bin/true', '/bin/evil') WHERE seq = 1", "changed"),
        ("DELETE FROM rows WHERE seq = 3", "missing"),
        ("DELETE FROM rows WHERE seq >= 5", "missing"),
        ("UPDATE rows SET seq = CASE seq WHEN 1 THEN 103 WHEN 3 THEN 101 ELSE seq + 100 END", "missing"),
        ("UPDATE rows SET kind = 'kept' WHERE seq = 2", "changed"),
        ("DELETE FROM rows", "missing"),
    ],
)
def test_bad_case_51_s04_an_edited_journal_is_noticed_and_no_inverse_runs(
    ws: Workspace, journal: Journal, statement: str, reason: str
) -> None:
    for _ in range(3):
        journal.record(draft(), PLACE)
    journal.log.must_be_whole(ws.id)
    _tamper(ws, statement)
    assert reason in " ".join(found for _, found in journal.log.verify(ws.id))
    with pytest.raises(StoreCorrupted, match="no inverse of it is run"):
        journal.log.must_be_whole(ws.id)


def test_a_row_of_another_workspace_cannot_be_passed_off(ws: Workspace, journal: Journal) -> None:
    journal.record(draft(), PLACE)
    _tamper(ws, "UPDATE rows SET workspace = 'another'", "UPDATE effects SET workspace = 'another'")
    assert list(journal.log.verify("another"))


def test_the_journal_and_its_key_are_the_owners_alone(ws: Workspace, journal: Journal) -> None:
    journal.record(draft(), PLACE)
    for name in ("effects.db", "effects.key"):
        assert stat.S_IMODE(os.stat(os.path.join(ws.home, name)).st_mode) == 0o600


def test_bad_case_4_a_journal_that_cannot_be_written_stops_the_effect(ws: Workspace, journal: Journal) -> None:
    journal.record(draft(), PLACE)
    with sqlite3.connect(os.path.join(ws.home, "effects.db")) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(ReprieveError):
        journal.begin(draft(), PLACE)


def test_wb_42_many_processes_write_and_nothing_is_lost(ws: Workspace, project: Path) -> None:
    script = (
        "import sys; from reprieve.app.finding import open_workspace; from reprieve.app.journals import *\n"
        "from reprieve.effects.journal import Place; from reprieve.model.effect import EffectDraft\n"
        "ws = open_workspace(sys.argv[1]); j = open_journal(ws)\n"
        "for i in range(25):\n"
        "    j.record(EffectDraft('http', resource='r', description=f'{sys.argv[2]} {i}'), Place(at=1))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(project), str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    journal = open_journal(ws)
    found = {effect.description for effect in journal.effects()}
    journal.log.must_be_whole(ws.id)
    journal.log.close()
    assert found == {f"{n} {i}" for n in range(4) for i in range(25)}


def test_p_17_what_is_not_known_counts_as_irreversible() -> None:
    assert EffectDraft("http").cls == "irreversible"
    assert worst(("read", "opaque", "holdable")) == "opaque" and worst(()) == "read"
    assert CLASSES.index("irreversible") > CLASSES.index("compensable")


def test_a_row_that_is_written_while_the_chain_is_proven_is_no_damage(
    ws: Workspace, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.record(draft(), PLACE)
    other, query, written = open_journal(ws), journal.log.db.query, []

    def meanwhile(sql: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = query(sql, values)
        if not rows and "FROM rows" in sql:
            written.append(other.record(draft(), PLACE))
        return rows

    monkeypatch.setattr(journal.log.db, "query", meanwhile)
    journal.log.must_be_whole(ws.id)
    assert written
    other.log.close()


def test_two_processes_that_make_the_journal_at_once_sign_with_one_key(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has looked, found no journal, and makes its key when the first one has begun to write."""
    home, real, others = open_home(ws.home), effectlog._make_once, []

    def slow(home: Home, name: str, data: bytes) -> None:
        if not others:
            others.append(None)
            others.append(open_journal(ws))  # whole, before we get on
        real(home, name, data)

    monkeypatch.setattr(effectlog, "_make_once", slow)
    mine = effectlog.EffectLog(home)
    other = others[1]
    assert other is not None
    other.record(draft(), PLACE)
    mine.must_be_whole(ws.id)
    assert mine.fingerprint(b"x") == other.log.fingerprint(b"x")
    mine.close()
    other.log.close()
