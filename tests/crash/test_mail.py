"""kill -9 at every call that changes a disk or talks to a server, while mail is staged, released and cancelled.

The sink counts: no message arrives twice, none that arrived is called unsent, none leaves that was cancelled. And two
processes at once: one of them wins.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from support import SRC, worlds
from support.forkserver import MUTATING, NET, Fault, ForkServer, Ran
from support.mailbox import Mailbox
from support.postoffice import Sink
from support.sweep import Tally, points_of

KILLS = ("kill", "kill_after")
ROUNDS = 50
Counted = Callable[[Tally], None]
MARKS = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "CURSOR_AGENT", "OPENCODE", "AI_AGENT",
         "REPRIEVE_RUN")  # fmt: skip


class Office:
    """A workspace with mail in it, put back for each strike; a sink, and a mailbox for drafts."""

    def __init__(self, server: ForkServer, sink: Sink, mailbox: Mailbox, base: Path) -> None:
        self.server, self.sink, self.mailbox, self.base = server, sink, mailbox, base
        self.tree, self.template, self.home = base / "tree", base / "template", base / "home"
        self.tree.mkdir()
        (self.tree / "a").write_text("a")
        (base / "config.toml").write_text(
            sink.settings(
                imap_host="127.0.0.1",
                imap_port=mailbox.port,
                imap_security="none",
                imap_user="me",
                imap_password="env:MAIL_PASSWORD",
            )
        )
        self.at = self.template
        self.ok("checkpoint", "base")

    def run(self, *argv: str, fault: Fault | None = None) -> Ran:
        return self.server.run(argv, cwd=self.tree, env=self._env(), fault=fault, roots=[self.at], timeout=60)

    def spawn(self, *argv: str) -> int:
        return self.server.spawn(argv, cwd=self.tree, env=self._env())

    def ok(self, *argv: str) -> Any:
        ran = self.run(*argv, "--json")
        assert ran.code == 0, ran
        return ran.json

    def stage(self, subject: str, *more: str) -> str:
        words = ("mail", "stage", "--to", "b@y.org", "--subject", subject, "--body", "x\n.\ny", *more)
        return str(self.ok(*words)["effect"]["id"])

    def begin(self) -> None:
        """A fresh store, a sink that has seen nothing, no drafts but those that the template knows."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.template, self.home)
        self.at = self.home
        self.sink.settle()
        self.sink.arrived.clear()
        self.sink.heard.clear()
        self.mailbox.settle()
        self.mailbox.drafts.clear()
        self.mailbox.drafts.update(deepcopy(self.known))

    def remember(self) -> None:
        """What is in the mailbox now belongs to the template."""
        self.known = deepcopy(self.mailbox.drafts)

    known: dict[int, Any] = {}  # noqa: RUF012 - replaced, never changed

    def states(self) -> dict[str, str]:
        """Subject → state."""
        found = self.ok("effects")["effects"]
        return {effect["description"].split("'")[1]: effect["state"] for effect in found}

    def arrived(self) -> dict[str, int]:
        """Subject → how often."""
        self.sink.settle()
        counts: dict[str, int] = {}
        for message in self.sink.arrived:
            subject = message.data.partition(b"Subject: ")[2].partition(b"\r\n")[0].decode()
            counts[subject] = counts.get(subject, 0) + 1
        return counts

    def strike(self, name: str, argv: tuple[str, ...], judge: Callable[[], list[str]], *, limit: int) -> list[Tally]:
        self.begin()
        mask = MUTATING | NET
        counted = self.run(*argv, fault=Fault("kill", -1, mask=mask))
        assert counted.code == 0, counted
        tallies = []
        for mode in KILLS:
            tally = Tally(f"{name} {mode}")
            for point in points_of(counted.seen, shard=0, shards=1, limit=limit):
                self.begin()
                ran = self.run(*argv, fault=Fault(mode, point, mask=mask))
                if not ran.fired and ran.code == 0:
                    continue  # one call less this time: an answer came in one piece
                self.sink.settle()
                self.mailbox.settle()
                tally.points += 1
                tally.fired += ran.code == -9 and bool(ran.fired)
                if wrong := judge():
                    tally.unsound.append(f"{name} {mode} at {point} ({ran.call} {ran.path}): " + "; ".join(wrong))
            tallies.append(tally)
        return tallies

    def _env(self) -> dict[str, str]:
        return {
            "REPRIEVE_HOME": str(self.at),
            "REPRIEVE_CONFIG": str(self.base / "config.toml"),
            "MAIL_PASSWORD": "right",
            "NO_COLOR": "1",
            **dict.fromkeys(MARKS, ""),
        }


@pytest.fixture(scope="module")
def warm() -> Iterator[ForkServer]:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("fault injection needs Linux (LD_PRELOAD) and gcc")
    server = ForkServer(paths=[str(SRC)])
    yield server
    server.close()


@pytest.fixture
def office(warm: ForkServer) -> Iterator[Office]:
    base = Path(tempfile.mkdtemp(prefix="reprieve-mail-", dir=worlds.scratch_base()))
    with Sink() as sink, Mailbox() as mailbox:
        yield Office(warm, sink, mailbox, base)
    shutil.rmtree(base)


def disagrees(states: dict[str, str], arrived: dict[str, int]) -> list[str]:
    """Where what is claimed and what arrived do not go together."""
    allowed = {"held": (0,), "canceled": (0,), "done": (1,), "unknown": (0, 1)}
    return [
        f"'{subject}' is {state} and arrived {arrived.get(subject, 0)} times"
        for subject, state in states.items()
        if arrived.get(subject, 0) not in allowed.get(state, ())
    ]


@pytest.mark.parametrize("backend", ["smtp", "imap"])
def test_E09_killed_at_every_call_of_stage_it_is_held_whole_or_not_at_all(
    office: Office, counted: Counted, backend: str
) -> None:
    office.stage("before")
    office.remember()

    def judge() -> list[str]:
        wrong = disagrees(office.states(), office.arrived())
        held = office.ok("mail", "pending")["effects"]
        if len(held) not in (1, 2):
            wrong.append(f"{len(held)} are held")
        if len(office.mailbox.drafts) > (backend == "imap"):
            wrong.append(f"{len(office.mailbox.drafts)} drafts")
        if any(path.stat().st_mode & 0o077 for path in (office.home / "mail").iterdir()):
            wrong.append("a message that others can read")
        office.run("mail", "release", *(effect["id"] for effect in held), "--yes")
        wrong += disagrees(office.states(), office.arrived())
        if sum(office.arrived().values()) != len(held):
            wrong.append(f"{len(held)} were held, {office.arrived()} arrived")
        if office.mailbox.drafts:
            wrong.append("a draft of what was sent is left")
        return wrong

    argv = ("mail", "stage", "--to", "b@y.org", "--subject", "new", "--body", "x", "--backend", backend)
    for tally in office.strike(f"mail stage {backend}", argv, judge, limit={"smtp": 30, "imap": 20}[backend]):
        counted(tally)


@pytest.mark.parametrize("backend", ["smtp", "imap"])
def test_bad_case_3_E09_killed_at_every_call_of_release_nothing_is_sent_twice_or_called_unsent(
    office: Office, counted: Counted, backend: str
) -> None:
    ids = [office.stage(name, "--backend", backend) for name in ("one", "two")]
    office.remember()

    def judge() -> list[str]:
        before = office.states()
        wrong = disagrees(before, office.arrived())
        # whoever tries again, and again, sends what is held and nothing else; and what may be gone is not cancelled
        for words in (("release", "--yes"), ("release", "--yes"), ("cancel",)):
            for id in ids:
                office.run("mail", *words, id)
        after = office.states()
        wrong += disagrees(after, office.arrived())
        for subject, state in before.items():
            if after[subject] != {"held": "done", "unknown": "unknown", "done": "done"}[state]:
                wrong.append(f"'{subject}' was {state}, and then {after[subject]}")
        return wrong

    argv = ("mail", "release", *ids, "--yes")
    for tally in office.strike(f"mail release {backend}", argv, judge, limit={"smtp": 40, "imap": 30}[backend]):
        counted(tally)


@pytest.mark.parametrize("backend", ["smtp", "imap"])
def test_bad_case_3_killed_at_every_call_of_cancel_it_never_leaves_or_is_still_held(
    office: Office, counted: Counted, backend: str
) -> None:
    id = office.stage("one", "--backend", backend)
    office.remember()

    def judge() -> list[str]:
        wrong, was = disagrees(office.states(), office.arrived()), office.states()["one"]
        if was not in ("held", "canceled"):
            wrong.append(f"it is {was}")
        if was == "canceled":
            office.run("mail", "cancel", id)
            if office.mailbox.drafts:
                wrong.append("its draft is left, also by the second cancel")
        office.run("mail", "release", id, "--yes")
        if (office.states()["one"], office.arrived()) != (("done", {"one": 1}) if was == "held" else ("canceled", {})):
            wrong.append(f"{was} and then {office.states()}, {office.arrived()}")
        return wrong

    for tally in office.strike(f"mail cancel {backend}", ("mail", "cancel", id), judge, limit=20):
        counted(tally)


@pytest.mark.parametrize("word", ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "."])
def test_bad_case_3_killed_at_each_word_that_the_server_hears(office: Office, word: str) -> None:
    """Killed by the server itself, before it answers: before the message's end it did not arrive, after it it did."""
    id = office.stage("one")
    office.begin()
    running: list[int] = []

    def hear(said: str) -> None:
        if said == word:
            while not running:
                pass
            os.kill(running[0], 9)

    office.sink.hear = hear
    running.append(office.spawn("mail", "release", id, "--yes"))
    assert office.server.wait(running[0]).code == -9
    office.sink.hear = None
    assert office.arrived() == ({"one": 1} if word == "." else {})
    assert office.states() == {"one": "unknown"}
    for words in (("release", id, "--yes"), ("cancel", id)):
        assert office.run("mail", *words).code == 5
    assert office.arrived() == ({"one": 1} if word == "." else {})


def test_bad_case_54_of_two_processes_at_one_message_exactly_one_wins(office: Office) -> None:
    winners = {"release": 0, "cancel": 0}
    for n in range(ROUNDS):
        id = office.stage(f"round {n}")
        second = ("cancel", id) if n % 2 else ("release", id, "--yes")
        pids = [office.spawn("mail", "release", id, "--yes"), office.spawn("mail", *second)]
        if n % 4 > 1:
            pids.reverse()
        codes = [office.server.wait(pid).code for pid in pids]
        assert sorted(codes)[0] == 0 and sorted(codes)[1] in (5, 6), codes
        state, count = office.states()[f"round {n}"], office.arrived().get(f"round {n}", 0)
        assert (state, count) in ((("done", 1), ("canceled", 0)) if n % 2 else (("done", 1),))
        winners["release" if count else "cancel"] += 1
    print("winners:", winners)
