"""`reprieve mail`: held mail, from staging to release or cancellation."""

from __future__ import annotations

import os

from reprieve.app import mail
from reprieve.app.persons import agent_above
from reprieve.cli import humane, opening
from reprieve.cli.spec import Argument, Command, Option, Parsed
from reprieve.cli.take_back import PARTLY
from reprieve.cli.terminal import Terminal
from reprieve.errors import Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.effects.mail import Outcome
    from reprieve.effects.mime import Attachment, Letter
    from reprieve.model.effect import Effect

_LONGEST = 50 << 20  # bytes of a message and of what is attached to it
SPEC = Command(
    "mail",
    "Hold mail until a person releases or cancels it",
    (
        (
            "reprieve mail stage --to jane@example.org --subject 'Offer' --body-file offer.txt --attach offer.pdf",
            "hold a message; nothing is sent",
        ),
        ("reprieve mail release k7m2", "look at a held message once more, and send it"),
    ),
    details=(
        "stage holds a message, pending shows what waits (with an ID the message whole), release sends it once, cancel "
        "drops it. A release needs a person: a yes at a terminal, or an approval; --yes counts as one only in the mode "
        "assist and outside of an agent's processes. What is gone is gone: a rollback cancels held messages (not "
        "those that you staged yourself, outside of every agent's step) and names those that were sent. "
        "If nobody can tell whether a message left it is unknown, and is never sent again by "
        "itself. How to send is set by `reprieve config set mail.…`."
    ),
    arguments=(
        Argument(
            "ACTION",
            "stage, pending, release or cancel",
            is_required=True,
            choices=("stage", "pending", "release", "cancel"),
        ),
        Argument("ID", "pending, release, cancel: which messages; a unique beginning is enough", is_many=True),
    ),
    options=(
        Option("--to", "With stage: a recipient", metavar="ADDRESS", is_many=True),
        Option("--cc", "With stage: one who gets a copy", metavar="ADDRESS", is_many=True),
        Option("--bcc", "With stage: one who gets a copy and is not named in it", metavar="ADDRESS", is_many=True),
        Option("--from", "With stage: the sender", metavar="ADDRESS", default="mail.from"),
        Option("--subject", "With stage: the subject", metavar="TEXT"),
        Option("--body", "With stage: the text", metavar="TEXT"),
        Option(
            "--body-file", "With stage: a file with the text, - for standard input", metavar="FILE", complete="path"
        ),
        Option("--html-file", "With stage: a file with the text as HTML", metavar="FILE", complete="path"),
        Option("--attach", "With stage: a file that goes along", metavar="FILE", is_many=True, complete="path"),
        Option("--eml", "With stage: a whole message, - for standard input", metavar="FILE", complete="path"),
        Option(
            "--backend",
            "With stage: what it is sent by",
            metavar="NAME",
            choices=mail.BACKENDS,
            default="mail.backend",
        ),
        Option("--all", "With cancel: all that are held"),
        Option("--yes", "With release: do not ask", short="-y"),
    ),
    exit_codes=(
        (5, "a person's yes is missing, or a message is not held: nothing was sent"),
        (6, "some were not sent or not cancelled, or a recipient was refused; each is named"),
    ),
)
_STAGE = ("to", "cc", "bcc", "from", "subject", "body", "body-file", "html-file", "attach", "eml", "backend")


def run(args: Parsed, out: Terminal) -> int:
    action = args.text("ACTION")
    if action != "stage" and (wrong := [name for name in _STAGE if args.many(name)]):
        raise Usage(f"'mail {action}' takes no --{wrong[0]}", hints=["see: reprieve mail --help"])
    if args.flag("yes") and action != "release":
        raise Usage(f"'mail {action}' takes no --yes")
    if args.flag("all") and action != "cancel":
        raise Usage(f"'mail {action}' takes no --all", hints=["name the messages"])
    if action == "stage":
        return _stage(args, out)
    with opening.workspace(args, out) as ws:
        return {"pending": _pending, "release": _release, "cancel": _cancel}[action](args, out, ws)


def _stage(args: Parsed, out: Terminal) -> int:
    if args.many("ID"):
        raise Usage(f"'mail stage' does not take '{args.many('ID')[0]}'", hints=["options name what it holds"])
    with opening.workspace(args, out, create=True) as ws:
        outcome = mail.stage(ws, _letter(args, ws), by=args.text("backend"))
    effect = outcome.effect
    out.answer(effect=mail.mail_json(effect), problem=outcome.problem or None)
    out.line(f"Held {humane.safe(mail.says(effect))}")
    if outcome.problem:
        out.reporter.warn(f"{outcome.problem}; the message itself is held")
    out.say(f"Nothing was sent. Send it: reprieve mail release {effect.id}")
    out.say(f"Drop it: reprieve mail cancel {effect.id}")
    return 0


def _letter(args: Parsed, ws: Workspace) -> Letter:
    to, cc, bcc = args.many("to"), args.many("cc"), args.many("bcc")
    if args.maybe("eml") is not None:
        if wrong := [name for name in ("subject", "body", "body-file", "html-file", "attach") if args.many(name)]:
            raise Usage(f"--eml is a whole message; it takes no --{wrong[0]}")
        raw = _read(args, "eml")
        return mail.adopt(ws, raw, sender=_bare(args.text("from")), also=(*to, *cc, *bcc))
    if args.many("body") and args.many("body-file"):
        raise Usage("--body and --body-file are two texts; choose one")
    text = args.maybe("body") if args.maybe("body-file") is None else _text(args, "body-file")
    return mail.compose(
        ws,
        sender=args.text("from"),
        to=to,
        cc=cc,
        bcc=bcc,
        subject=args.text("subject"),
        text=text,
        html=_text(args, "html-file") if args.many("html-file") else None,
        attachments=[_attachment(args, name) for name in args.many("attach")],
    )


def _pending(args: Parsed, out: Terminal, ws: Workspace) -> int:
    if args.many("ID"):
        return _show(args, out, ws)
    found = mail.waiting(ws)
    out.answer(effects=[mail.mail_json(effect) for effect in found])
    for effect in found:
        note = "" if effect.state == "held" else "  MAY HAVE BEEN SENT"
        out.line(humane.safe(mail.says(effect)) + note)
        if effect.detail:
            out.line(f"    {humane.safe(effect.detail)}")
    if not found:
        out.line("No mail waits")
    return 0


def _show(args: Parsed, out: Terminal, ws: Workspace) -> int:
    """Messages whole, for a person who decides."""
    with mail.room_of(ws) as room, out.paged():
        effects = mail.chosen(room, args.many("ID"))
        out.answer(effects=[{**mail.mail_json(effect), "file": room.path(effect.id)} for effect in effects])
        for effect in effects:
            _show_one(effect, room.letter(effect), out)
    return 0


def _show_one(effect: Effect, letter: Letter, out: Terminal) -> None:
    from reprieve.effects import mime

    out.line(f"{effect.id}  [{effect.state}]", "bold")
    out.line(f"From: {humane.safe(letter.sender)}")
    out.line(f"To everybody: {humane.safe(', '.join(letter.rcpt))}")
    out.line(f"Subject: {humane.safe(letter.subject)}")
    for type, name, content in mime.parts(letter.data):
        if name or not type.startswith("text/"):
            out.line(f"Attached: {humane.safe(name or type)} ({type}, {humane.size(len(content))})")
        else:
            out.line("")
            for line in content.decode("utf-8", "replace").splitlines():
                out.line("  " + humane.safe(line))
    out.line("")


def _release(args: Parsed, out: Terminal, ws: Workspace) -> int:
    if not args.many("ID"):
        raise Usage("'mail release' needs ID", hints=["see what waits: reprieve mail pending"])
    with mail.room_of(ws) as room:
        effects = mail.chosen(room, args.many("ID"))
        letters = mail.must_be_releasable(room, effects)
        is_confirmed = False
        if out.is_interactive:
            is_confirmed = args.flag("yes")
            if not is_confirmed:
                for effect, letter in zip(effects, letters, strict=True):
                    _show_one(effect, letter, out)
                is_confirmed = out.confirm(f"Send {humane.count(len(effects), 'message')}? It can't be taken back")
                if not is_confirmed:
                    raise Refused("not confirmed; nothing was sent")
        mail.need_person(ws, room, effects, is_confirmed=is_confirmed, is_yes=args.flag("yes"))
        outcomes: list[Outcome] = []
        mail.release(room, effects, lambda outcome: _tell(outcome, outcomes, "done", "sent", out))
    return _sum_up(outcomes, "done", "sent", out)


def _cancel(args: Parsed, out: Terminal, ws: Workspace) -> int:
    if args.flag("all") == bool(args.many("ID")):
        raise Usage("'mail cancel' needs ID, or --all", hints=["see what waits: reprieve mail pending"])
    with mail.room_of(ws) as room:
        if args.flag("all"):
            effects = [effect for effect in room.waiting() if effect.state == "held"]
        else:
            effects = mail.chosen(room, args.many("ID"))
            for effect in effects:
                if effect.state != "held" and not (effect.state == "canceled" and mail.may_have_draft(effect)):
                    room.must_be_held(effect, "it can't be cancelled")
        if (agent := agent_above(ws)) is not None:
            mail.need_person_to_cancel(
                ws, room, [e for e in effects if e.actor != agent.actor], asker=f"command line {agent.actor}"
            )
        outcomes: list[Outcome] = []
        out.answer(effects=[], cancelled=0)
        mail.cancel(room, effects, lambda outcome: _tell(outcome, outcomes, "canceled", "cancelled", out))
    return _sum_up(outcomes, "canceled", "cancelled", out)


def _tell(outcome: Outcome, outcomes: list[Outcome], wanted: str, word: str, out: Terminal) -> None:
    """As they come: what was sent is told even if the next one ends in an error."""
    effect = outcome.effect
    outcomes.append(outcome)
    good = sum(each.effect.state == wanted for each in outcomes)
    shown = [{**mail.mail_json(each.effect), "problem": each.problem or None} for each in outcomes]
    out.answer(effects=shown, **{word: good})
    if effect.state == wanted:
        out.line(f"{word.capitalize()} {humane.safe(mail.says(effect))}")
        if outcome.problem:
            out.line(f"    {humane.safe(outcome.problem)}", "yellow")
        return
    state = {"held": "NOT SENT, still held", "unknown": "MAY HAVE BEEN SENT"}.get(effect.state, effect.state)
    out.line(f"{state}: {humane.safe(mail.says(effect))}", "red")
    out.line(f"    {humane.safe(outcome.problem)}")


def _sum_up(outcomes: list[Outcome], wanted: str, word: str, out: Terminal) -> int:
    good = sum(outcome.effect.state == wanted for outcome in outcomes)
    is_whole = good == len(outcomes) and not any(outcome.problem for outcome in outcomes)
    if not outcomes:
        out.line("No mail is held")
    elif good < len(outcomes):
        out.line(f"{good} of {humane.count(len(outcomes), 'message')} {word}")
    elif wanted == "done":
        out.say("What was sent is gone; no rollback brings it back")
    return 0 if is_whole else PARTLY


def _bare(address: str) -> str:
    from reprieve.effects.mime import addresses

    return addresses(address)[0] if address else ""


def _attachment(args: Parsed, name: str) -> Attachment:
    from reprieve.effects.mime import Attachment

    return Attachment(os.path.basename(name), _bytes(args, name))


def _text(args: Parsed, option: str) -> str:
    try:
        return _read(args, option).decode("utf-8")
    except UnicodeDecodeError as e:
        raise Usage(f"'{args.text(option)}' is not text in UTF-8") from e


def _read(args: Parsed, option: str) -> bytes:
    name = args.text(option)
    if name == "-":
        import sys

        return sys.stdin.buffer.read(_LONGEST + 1)
    return _bytes(args, name)


def _bytes(args: Parsed, name: str) -> bytes:
    try:
        with open(os.path.join(args.start, name), "rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as e:
        raise Usage(f"cannot read '{name}': {e.strerror}") from e
    if len(data) > _LONGEST:
        raise Usage(f"'{name}' is larger than {humane.size(_LONGEST)}")
    return data
