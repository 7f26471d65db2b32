"""Held mail of a workspace: stage it, look at it, have a person release it, or cancel it."""

from __future__ import annotations

from contextlib import contextmanager

from reprieve.app import journals
from reprieve.app.effects import approvals_of, journal_of, json_of
from reprieve.effects import mime
from reprieve.effects.journal import Charge
from reprieve.effects.mail import Mailroom, Outcome, hash_of, may_have_draft
from reprieve.errors import BadRef, Refused, Usage
from reprieve.model import effect as states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reprieve.app.config import Config
    from reprieve.app.workspace import Workspace
    from reprieve.effects.journal import Journal
    from reprieve.effects.mail import Backend
    from reprieve.effects.mime import Attachment, Letter
    from reprieve.model.effect import Effect, Json

__all__ = ["may_have_draft"]
BACKENDS = ("smtp", "imap", "gmail", "graph")


@contextmanager
def room_of(ws: Workspace) -> Iterator[Mailroom]:
    """The workspace's held mail, for as long as the block lasts."""
    with journal_of(ws) as journal:
        yield _room(ws, journal)


def _room(ws: Workspace, journal: Journal) -> Mailroom:
    return Mailroom(journal, journal.log.home, lambda name: backend(ws.config, name))


def _charges(config: Config, letter: Letter) -> tuple[Charge, ...]:
    """What a message of a run takes of its budgets."""
    wanted = (("messages", 1, config.budget_messages), ("recipients", len(letter.rcpt), config.budget_recipients))
    return tuple(Charge(name, float(amount), float(cap)) for name, amount, cap in wanted if cap)


def backend(config: Config, name: str) -> Backend:
    """What sends, as the user's configuration sets it up."""
    if name in ("smtp", "imap"):
        from reprieve.effects.mail_smtp import Server, SmtpBackend

        smtp = SmtpBackend(
            Server(
                config.mail_smtp_host,
                config.mail_smtp_port,
                config.mail_smtp_security,
                config.mail_smtp_user,
                config.mail_smtp_password,
            )
        )
        if name == "smtp":
            return smtp
        from reprieve.effects.mail_imap import ImapDrafts

        mailbox = Server(
            config.mail_imap_host,
            config.mail_imap_port,
            config.mail_imap_security,
            config.mail_imap_user,
            config.mail_imap_password,
        )
        return ImapDrafts(mailbox, config.mail_imap_drafts, smtp)
    from reprieve.effects.mail_web import GmailDrafts, GraphDrafts

    if name == "gmail":
        return GmailDrafts(config.mail_gmail_url, config.mail_gmail_token)
    if name == "graph":
        return GraphDrafts(config.mail_graph_url, config.mail_graph_token)
    raise Usage(f"there is no way '{name}' to send mail", hints=[f"one of: {', '.join(BACKENDS)}"])


# -- stage


def compose(
    ws: Workspace,
    *,
    sender: str = "",
    to: Sequence[str] = (),
    cc: Sequence[str] = (),
    bcc: Sequence[str] = (),
    subject: str = "",
    text: str | None = None,
    html: str | None = None,
    attachments: Sequence[Attachment] = (),
) -> Letter:
    """A new message; without a sender it comes from whom the configuration names."""
    sender = sender or ws.config.mail_from
    if not sender:
        raise Usage("the message has no sender", hints=["--from you@example.org", "reprieve config set mail.from …"])
    return mime.compose(
        sender=sender,
        to=to,
        cc=cc,
        bcc=bcc,
        subject=subject,
        text=text,
        html=html,
        attachments=attachments,
        now_s=ws.clock() / 1e9,
    )


def adopt(
    ws: Workspace,
    raw: bytes,
    *,
    sender: str = "",
    rcpt: Sequence[str] | None = None,
    also: Sequence[str] = (),
) -> Letter:
    """A message that somebody else wrote. `rcpt`: who gets it, instead of those it names; `also`: besides them."""
    if also:
        rcpt = [*(mime.receivers_of(raw) if rcpt is None else rcpt), *mime.addresses(*also)]
    if not sender and not mime.field(mime.with_crlf(raw), "from"):
        sender = ws.config.mail_from
    return mime.adopt(raw, sender=sender, rcpt=rcpt, now_s=ws.clock() / 1e9)


def stage(ws: Workspace, letter: Letter, *, by: str = "", agent: str = "") -> Outcome:
    """Hold it until a person releases or cancels it; durable when this returns.

    `agent`: who stages it, where no window of an agent's says so.
    """
    from reprieve.app.agreement import is_agents
    from reprieve.policy.redact import redact

    with room_of(ws) as room:
        place = journals.place(ws)
        if agent and not is_agents(place.actor):
            place = place.replace(actor=agent)
        charges = _charges(ws.config, letter) if place.run else ()
        return room.stage(letter, by or ws.config.mail_backend, place, subject=redact(letter.subject), charges=charges)


# -- look


def waiting(ws: Workspace) -> list[Effect]:
    """What waits for a person, oldest first."""
    if not journals.has_journal(ws):
        return []
    with room_of(ws) as room:
        room.sweep(ws.clock() / 1e9)
        return list(room.waiting())


def damaged(ws: Workspace, journal: Journal) -> list[str]:
    """Held messages that could not be sent any more, because their bytes are not what was staged."""
    room, found = _room(ws, journal), []
    for effect in room.waiting():
        if effect.state == states.HELD:
            try:
                room.letter(effect)
            except Refused as e:
                found.append(f"mail {effect.id}: {e.message}")
    return found


def chosen(room: Mailroom, ids: Sequence[str]) -> list[Effect]:
    """The messages of these ids, each once. Raises BadRef."""
    found: dict[str, Effect] = {}
    for id in ids:
        effect = room.journal.find(id)
        if effect.kind != "mail":
            raise BadRef(f"'{id}' is no mail but {effect.kind}", hints=["see what waits: reprieve mail pending"])
        found[effect.id] = effect
    return list(found.values())


def mail_json(effect: Effect) -> Json:
    """An effect as the contract's JSON, with what makes it a message."""
    return {**json_of(effect), "mail": effect.request, "reply": effect.reply}


# -- release and cancel


def must_be_releasable(room: Mailroom, effects: Sequence[Effect]) -> list[Letter]:
    """The messages, all of them proven, held, and such that they could be sent now: else nothing is begun."""
    room.journal.log.must_be_whole(room.journal.workspace)
    letters = [room.must_be_held(effect) for effect in effects]
    for effect in effects:
        room.prepare(effect)
    return letters


def need_person(ws: Workspace, room: Mailroom, effects: Sequence[Effect], *, is_confirmed: bool, is_yes: bool) -> None:
    """Raises Refused until a person said yes to exactly these messages.

    `is_confirmed`: at a terminal, just now; `is_yes`: a flag, which in autopilot anything could have given.
    """
    from reprieve.app.persons import agent_above

    approvals = approvals_of(room.journal, ws)
    hash = hash_of(list(effects))
    if approvals.use(hash):
        return
    agent = agent_above(ws)
    if agent is None and (is_confirmed or (is_yes and ws.config.policy_mode == "assist")):
        return
    asked = approvals.ask(hash, "; ".join(["send mail", *map(says, effects)]), states.IRREVERSIBLE)
    what = "it" if len(effects) == 1 else "them"
    whose = f", and this belongs to {agent.actor}" if agent is not None else ""
    raise Refused(
        f"mail leaves only after a person's yes{whose}; nothing was sent",
        details=list(map(says, effects)),
        hints=[
            f"look at {what}, then in a terminal of your own: reprieve approve {asked.id}",
            "afterwards the same command sends exactly these",
        ],
        data={"approval": asked.id, "hash": hash},
    )


def need_person_to_cancel(ws: Workspace, room: Mailroom, effects: Sequence[Effect], *, asker: str) -> None:
    """Raises Refused until a person agreed that an agent cancels messages that no agent is known to have staged."""
    from reprieve.app.agreement import is_agents, need_yes

    theirs = [effect for effect in effects if not is_agents(effect.actor)]
    if theirs:
        action = "cancel mail: " + "; ".join(map(says, theirs))
        what = " ".join(["cancel", asker, *(effect.id for effect in theirs)])
        reason = "it is not known to be an agent's"
        need_yes(ws, room.journal, action, what, cls=states.HOLDABLE, reason=reason)


def says(effect: Effect) -> str:
    """What a release would send, complete in what matters."""
    request = effect.request or {}
    rcpt = request.get("rcpt")
    return (
        f"{effect.id}: '{request.get('subject')}' from {request.get('from')}"
        f" to {', '.join(map(str, rcpt)) if isinstance(rcpt, list) else ''} ({request.get('size')} bytes)"
    )


def release(room: Mailroom, effects: Sequence[Effect], tell: Callable[[Outcome], None]) -> None:
    """Send them, one after the other; each has an outcome of its own."""
    _each(room, effects, room.release, tell)


def cancel(room: Mailroom, effects: Sequence[Effect], tell: Callable[[Outcome], None]) -> None:
    """Drop them: they never leave."""
    _each(room, effects, room.cancel, tell)


def _each(
    room: Mailroom, effects: Sequence[Effect], act: Callable[[Effect], Outcome], tell: Callable[[Outcome], None]
) -> None:
    for effect in effects:
        try:
            outcome = act(effect)
        except Refused as e:
            outcome = Outcome(room.journal.get(effect.id), e.message)  # another process was first, or it was changed
        tell(outcome)


def cancel_held(ws: Workspace, journal: Journal) -> Callable[[Effect], tuple[str, str]]:
    """How a rollback cancels a held message: the draft in a mailbox goes with it."""
    room = _room(ws, journal)

    def one(effect: Effect) -> tuple[str, str]:
        outcome = room.cancel(effect, "by a rollback")
        if outcome.effect.state != states.CANCELED:
            return states.MANUAL, outcome.problem
        return states.CANCELED, outcome.problem or "it was held and never left"

    return one
