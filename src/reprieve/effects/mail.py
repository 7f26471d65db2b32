"""Held mail: a message that waits for a person, and then leaves once or never.

    stage     spool file (durable) ─▶ row "held" ─▶ draft in a mailbox, if the backend keeps one ─▶ row "noted"
    release   bytes read and proven ─▶ row "released" ─▶ backend sends ─▶ done │ held again │ unknown
    cancel    row "canceled" ─▶ the draft, if there is one, is removed

    REPRIEVE_HOME/mail/<effect>.eml    exactly what is sent; its SHA-256 is in the chained row

Every arrow is a point where the process may die. Before "released" nothing has left; after it and before the outcome
nobody can tell, so it is unknown and is never sent again by itself.
"""

from __future__ import annotations

import os

from reprieve.effects import mime
from reprieve.effects.mime import Letter
from reprieve.errors import Refused, ReprieveError, StoreFailed
from reprieve.model import effect as states
from reprieve.model.effect import EffectDraft
from reprieve.model.value import Value
from reprieve.store.chain import new_id
from reprieve.store.hashing import sha256
from reprieve.store.home import make_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from reprieve.effects.journal import Charge, Journal, Place
    from reprieve.model.effect import Effect, Json
    from reprieve.store.home import Home

KIND = "mail"
HOLD_FIELD = "X-Reprieve-Hold"  # in a draft: which held message it is
SENT, UNSENT, UNSURE = "sent", "unsent", "unsure"
_KEPT_S = 30 * 24 * 3600  # how long the bytes of a message that is sent or cancelled are kept
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Delivery(Value):
    """What became of a message that was handed over."""

    state: str  # sent: somebody took it; unsent: certainly nobody did; unsure: it may be gone
    detail: str
    accepted: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # (recipient, what the server said), of a message that others got


if TYPE_CHECKING:

    class Backend(Protocol):
        """Sends one message, and may keep a draft of it before. Raises nothing that the network can cause."""

        def prepare(self) -> None:
            """Raises Refused or Misconfigured if it can't send as it is set up: before anything is begun."""

        def must_fit(self, letter: Letter) -> None:
            """Raises Refused if it would not send this message to exactly its recipients."""

        def stage(self, id: str, letter: Letter) -> tuple[Json | None, str]:
            """Make a draft, once per id however often it is called: what it is called there, and what went wrong."""

        def send(self, id: str, letter: Letter, draft: Json | None) -> Delivery:
            """Hand it over, once."""

        def is_there(self, id: str, letter: Letter, draft: Json | None) -> bool | None:
            """Whether its draft is where it was; None if that can't be told."""

        def drop(self, id: str, letter: Letter, draft: Json | None) -> str:
            """Remove the draft; what went wrong, "" if nothing did."""


class Outcome(Value):
    """What a release or a cancellation came to. `problem`: what a person has to do or know, "" if nothing."""

    effect: Effect
    problem: str = ""


class Mailroom:
    """The held messages of one workspace."""

    def __init__(self, journal: Journal, home: Home, backend: Callable[[str], Backend]) -> None:
        self.journal, self._home, self._backend = journal, home, backend

    def stage(
        self, letter: Letter, backend: str, place: Place, *, subject: str, charges: Sequence[Charge] = ()
    ) -> Outcome:
        """Hold it: durable when this returns. `subject` is what may be shown of it, `charges` what budgets are for."""
        desk = self._backend(backend)
        desk.must_fit(letter)
        id = new_id()
        request: Json = {
            "from": letter.sender,
            "rcpt": list(letter.rcpt),
            "subject": subject,
            "message_id": letter.message_id,
            "sha256": sha256(letter.data).hex(),
            "size": len(letter.data),
            "backend": backend,
        }
        draft = EffectDraft(
            KIND,
            states.HOLDABLE,
            f"mail:{letter.message_id or id}",
            f"mail '{subject}' to {_few(letter.rcpt)}",
            request=request,
            fingerprint=mime.fingerprint(letter),
        )
        try:
            make_directory(self._home.file("mail"))
            self._home.write(f"mail/{id}.eml", letter.data, durable=True)
        except OSError as e:
            raise StoreFailed(f"the message could not be kept ({e.strerror or e}); it is neither held nor sent") from e
        try:
            effect = self.journal.hold(draft, place, id=id, charges=charges)
        except ReprieveError:
            os.unlink(self.path(id))  # nobody was told of it
            raise
        made, problem = desk.stage(id, letter)
        return Outcome(self.journal.note(id, made) if made else effect, problem)

    def path(self, id: str) -> str:
        """Where the bytes of a message are."""
        return self._home.file("mail", f"{id}.eml")

    def letter(self, effect: Effect) -> Letter:
        """The message as it was staged. Raises Refused if its file is not what was staged."""
        request = effect.request or {}
        try:
            fd = os.open(self.path(effect.id), _FLAGS)
            with open(fd, "rb") as file:
                data = file.read()
        except OSError as e:
            raise Refused(
                f"the message of {effect.id} can't be read ({e.strerror}); it is not sent",
                hints=[f"cancel it: reprieve mail cancel {effect.id}"],
                data={"effect": effect.id},
            ) from e
        if sha256(data).hex() != request.get("sha256"):
            raise Refused(
                f"the message of {effect.id} was changed since it was staged; it is not sent",
                details=[self.path(effect.id)],
                hints=[f"cancel it and stage it anew: reprieve mail cancel {effect.id}"],
                data={"effect": effect.id},
            )
        rcpt = request.get("rcpt")
        receivers = tuple(map(str, rcpt)) if isinstance(rcpt, list) else ()
        return Letter(
            str(request["from"]), receivers, data, mime.field(data, "subject"), str(request.get("message_id"))
        )

    def must_be_held(self, effect: Effect, so: str = "it is not sent again") -> Letter:
        """The message if it can be released. Raises Refused, with what to do; `so` is what follows from it."""
        if effect.kind != KIND:
            raise Refused(f"{effect.id} is no mail but {effect.kind}", data={"effect": effect.id})
        if effect.state == states.HELD:
            return self.letter(effect)
        facts = {"effect": effect.id, "state": effect.state}
        if effect.state == states.DONE:
            raise Refused(f"{effect.id} was sent already and is gone; {so}", data=facts)
        if effect.state == states.CANCELED:
            again = [f"stage it anew: {self.stage_again(effect)}"] if os.path.exists(self.path(effect.id)) else []
            raise Refused(f"{effect.id} was cancelled already; it never left", hints=again, data=facts)
        if effect.state == states.INTENT:
            raise Refused(f"{effect.id} is being sent by another process (pid {effect.pid})", data=facts)
        raise Refused(
            f"whether {effect.id} was sent is not known ({effect.detail}); {so}",
            hints=[
                f"look for {(effect.request or {}).get('message_id')} among what was sent, or ask a recipient",
                f"it arrived: reprieve keep {effect.id}",
                f"it did not: reprieve keep {effect.id}, then {self.stage_again(effect)}",
            ],
            data=facts,
        )

    def stage_again(self, effect: Effect) -> str:
        """The command that stages the same message once more."""
        from shlex import quote

        request = effect.request or {}
        rcpt = request.get("rcpt")
        words = ["reprieve mail stage --eml", quote(self.path(effect.id))]
        try:
            with open(self.path(effect.id), "rb") as file:
                named = mime.receivers_of(file.read())
        except OSError:
            named = []
        for address in rcpt if isinstance(rcpt, list) else ():
            if address not in named:
                words.append(f"--bcc {quote(str(address))}")
        return " ".join(words)

    def prepare(self, effect: Effect) -> None:
        """Raises if its backend can't send as it is set up."""
        self._desk(effect).prepare()

    def release(self, effect: Effect) -> Outcome:
        """Send a held message, once. Raises Refused if somebody else released or cancelled it, or it was changed."""
        desk, letter = self._desk(effect), self.must_be_held(effect)
        claimed = self.journal.release(effect.id)
        delivery = desk.send(effect.id, letter, claimed.after)
        if delivery.state == UNSENT:
            return Outcome(self.journal.hold_again(effect.id, delivery.detail), delivery.detail)
        if delivery.state == UNSURE:
            return Outcome(self.journal.finish(effect.id, states.UNKNOWN, detail=delivery.detail), delivery.detail)
        reply: Json = {"accepted": list(delivery.accepted), "refused": dict(delivery.refused)}
        done = self.journal.finish(effect.id, states.DONE, detail=delivery.detail, reply=reply)
        return Outcome(done, delivery.detail if delivery.refused else "")

    def cancel(self, effect: Effect, why: str = "") -> Outcome:
        """Drop a held message: it never leaves. Raises Refused if it is held no more.

        Of one that is cancelled already the draft is removed, if that could not be done before.
        """
        if may_have_draft(effect) and effect.state == states.CANCELED:
            return self._without_draft(effect)
        if effect.kind != KIND or effect.state != states.HELD:
            self.must_be_held(effect, "it can't be cancelled")
        if effect.after and self._desk(effect).is_there(effect.id, _named(effect), effect.after) is False:
            # its owner, or whoever else can open that mailbox, may have sent it from there
            detail = "its draft is gone from the mailbox: it was sent or deleted there"
            with self.journal.log.transaction():
                self.journal.release(effect.id)
                return Outcome(self.journal.finish(effect.id, states.UNKNOWN, detail=detail), detail)
        return self._without_draft(self.journal.cancel(effect.id, why))

    def _without_draft(self, effect: Effect) -> Outcome:
        problem = self._desk(effect).drop(effect.id, _named(effect), effect.after)
        if problem:
            problem = f"it is cancelled here; its draft in the mailbox is still there: {problem}"
        return Outcome(effect, problem)

    def sweep(self, now_s: float) -> None:
        """Remove the bytes of messages that were settled long ago."""
        try:
            names = os.listdir(self._home.file("mail"))
        except FileNotFoundError:
            return
        for name in names:
            path = self._home.file("mail", name)
            if os.lstat(path).st_mtime > now_s - _KEPT_S:
                continue
            found = self.journal.log.db.query("SELECT state FROM effects WHERE id = ?", (name.removesuffix(".eml"),))
            if found and found[0][0] in (states.DONE, states.CANCELED):
                os.unlink(path)

    def waiting(self) -> Iterator[Effect]:
        """What waits for a person: held, or sent perhaps; oldest first."""
        wanted = (states.HELD, states.INTENT, states.UNKNOWN)
        for effect in self.journal.effects(is_open=True, states=wanted, oldest_first=True):
            if effect.kind == KIND:
                yield effect

    def _desk(self, effect: Effect) -> Backend:
        return self._backend(str((effect.request or {}).get("backend")))


def may_have_draft(effect: Effect) -> bool:
    """Whether there may be a draft of it in a mailbox."""
    return effect.kind == KIND and (effect.request or {}).get("backend") != "smtp"


def _named(effect: Effect) -> Letter:
    """What it takes to find a message where there is a draft of it."""
    return Letter("", (), b"", "", str((effect.request or {}).get("message_id")))


def hash_of(effects: list[Effect]) -> str:
    """Covers exactly these messages to exactly these people: what an approval of their release is bound to."""
    from reprieve.model.quickjson import dumps

    names = ("from", "rcpt", "sha256", "backend")
    facts = [[e.id, *((e.request or {}).get(name) for name in names)] for e in sorted(effects, key=lambda e: e.id)]
    return sha256(dumps(["release mail", *facts]).encode()).hex()


def _few(rcpt: tuple[str, ...]) -> str:
    return ", ".join(rcpt[:3]) + (f" and {len(rcpt) - 3} more" if len(rcpt) > 3 else "")
