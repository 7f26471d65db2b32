"""Tools about mail: an agent stages it, a person has it sent."""

from __future__ import annotations

import os
import stat

from reprieve.app import mail, planned
from reprieve.app.workspace import Workspace
from reprieve.effects.mail import Outcome
from reprieve.effects.mime import Attachment
from reprieve.errors import Usage
from reprieve.files import native
from reprieve.mcp import schemas as s
from reprieve.mcp.tool import Call, Json, Tool, page
from reprieve.model.actor import of_session

_LARGEST = 25 << 20  # bytes of an attachment


def _stage(call: Call) -> Json:
    with call.workspace(create=True) as ws:
        letter = mail.compose(
            ws,
            sender=call.text("from"),
            to=call.texts("to"),
            cc=call.texts("cc"),
            bcc=call.texts("bcc"),
            subject=call.text("subject"),
            text=call.args.get("body"),
            html=call.maybe("html"),
            attachments=[_attachment(ws, name) for name in call.texts("attach")],
        )
        outcome = mail.stage(ws, letter, agent=of_session("mcp", None))
        return {"effect": mail.mail_json(outcome.effect), "problem": outcome.problem or None}


def _attachment(ws: Workspace, name: str) -> Attachment:
    """A file of the folder, read beneath the root and through no link."""
    (path,) = planned.inner_paths(ws, [name])
    try:
        fd = native.open_beneath(ws.root_fd, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise Usage(f"cannot read '{name}': {e.strerror}") from e
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Usage(f"'{name}' is no file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise Usage(f"'{name}' is larger than {_LARGEST >> 20} MiB")
    return Attachment(os.path.basename(name), data)


def _pending(call: Call) -> Json:
    with call.workspace() as ws:
        found, cursor = page([dict(mail.mail_json(effect)) for effect in mail.waiting(ws)], call)
        return {"effects": found, "next_cursor": cursor}


def _release(call: Call) -> Json:
    with call.workspace() as ws, mail.room_of(ws) as room:
        chosen = mail.chosen(room, call.texts("ids"))
        mail.must_be_releasable(room, chosen)
        mail.need_person(ws, room, chosen, is_confirmed=False, is_yes=False)
        outcomes: list[Outcome] = []
        mail.release(room, chosen, outcomes.append)
        return _told(outcomes, "sent", "done")


def _cancel(call: Call) -> Json:
    with call.workspace() as ws, mail.room_of(ws) as room:
        chosen = mail.chosen(room, call.texts("ids"))
        for effect in chosen:
            if effect.state != "held":
                room.must_be_held(effect, "it can't be cancelled")
        mail.need_person_to_cancel(ws, room, chosen, asker=call.desk.secret)
        outcomes: list[Outcome] = []
        mail.cancel(room, chosen, outcomes.append)
        return _told(outcomes, "cancelled", "canceled")


def _told(outcomes: list[Outcome], word: str, wanted: str) -> Json:
    shown = [{**mail.mail_json(one.effect), "problem": one.problem or None} for one in outcomes]
    return {"effects": shown, word: sum(one.effect.state == wanted for one in outcomes)}


_IDS = s.texts("Ids of held messages", least=1, most=100)
_PEOPLE = {"most": 500}

TOOLS = (
    Tool(
        "mail_stage", "Hold a message",
        "Write a message and hold it. Nothing is sent until a person releases it. Use it instead of sending mail.",
        _stage,
        s.takes(
            ("to", "subject", "body"),
            to=s.texts("Recipients", least=1, **_PEOPLE),
            cc=s.texts("Who gets a copy", **_PEOPLE),
            bcc=s.texts("Who gets a copy and is not named", **_PEOPLE),
            subject=s.text("The subject", most=s.TEXT),
            body=s.text("The text", most=s.LONG),
            html=s.text("The text as HTML", most=s.LONG),
            attach=s.texts("Files of the folder, relative to the root", most=50),
            **{"from": s.text("The sender; default: the one in the configuration", most=s.TEXT)},
        ),
        s.gives("effect", effect=s.EFFECT, problem=s.SN),
        reaches=True, has_foreign_text=True,
    ),
    Tool(
        "mail_pending", "List held messages",
        "Messages that wait for a person, oldest first; also those of which nobody knows whether they were sent.",
        _pending, s.takes(**s.PAGE), s.gives("effects", effects=s.listed(s.EFFECT), next_cursor=s.CURSOR_OUT),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "mail_release", "Have held messages sent",
        "Ask the person to have these messages sent. They leave only after a person's yes to exactly these; what was "
        "sent can never be taken back.",
        _release, s.takes(("ids",), ids=_IDS), s.gives("effects", "sent", effects=s.listed(s.EFFECT), sent=s.N),
        destroys=True, reaches=True, has_foreign_text=True,
    ),
    Tool(
        "mail_cancel", "Drop held messages",
        "Drop held messages: they never leave. One that no agent is known to have staged needs a person's yes.",
        _cancel, s.takes(("ids",), ids=_IDS),
        s.gives("effects", "cancelled", effects=s.listed(s.EFFECT), cancelled=s.N),
        destroys=True, reaches=True, has_foreign_text=True,
    ),
)  # fmt: skip
