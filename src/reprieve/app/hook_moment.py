"""What an agent's event says of the conversation and of the window that it opens: all that needs no workspace.

So that it is the same whether an event is handled at once (`hooks`) or promised (`promising`).
"""

from __future__ import annotations

from reprieve.app.hook_words import describe, note_for, title
from reprieve.model.actor import of_session, plain
from reprieve.model.talk import CALL, Talk, talk_json
from reprieve.model.value import Value
from reprieve.model.window import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.recent import Recent
    from reprieve.model.hookevent import HookEvent


class Opening(Value):
    """The checkpoint before a call, and the window that it opens; that has no id yet."""

    label: str
    note: str
    data: str
    window: Window


def actor_of(event: HookEvent) -> str:
    """Who acts: the session, or a sub-agent of it."""
    return of_session(event.agent, event.session, event.parent)


def step_of(event: HookEvent) -> str:
    """What the call is named on the timeline, "" if the agent gives it no id."""
    return f"call:{plain(event.call_id)}" if event.call_id else ""


def key_of(event: HookEvent) -> str:
    """What pairs a call's end with its beginning where it has no id."""
    return "" if event.call_id else event.input_key


def turn_of(event: HookEvent, last: Talk | None) -> int:
    """The number of the turn that is going on; a new one if the agent names another one (the prompt was missed)."""
    if last is None:
        return 1
    is_new = bool(event.turn and last.turn_id and event.turn != last.turn_id and event.parent is None)
    return last.turn + is_new


def talk_at(event: HookEvent, at: str, turn: int, *, recent: Recent, can_note: bool) -> Talk:
    """The moment of the conversation that the event is."""
    last = recent.talk
    turn_id = event.turn if event.parent is None else ""
    talk = Talk(
        of_session(event.agent, event.session),
        at,
        turn=turn,
        turn_id=turn_id or (last.turn_id if last is not None and last.turn == turn else ""),
        message=event.message_id or "",
        call=event.call_id or "",
        key=key_of(event),
        transcript=event.transcript_path or "",
    )
    return telling(event, talk, recent=recent, can_note=can_note)


def telling(event: HookEvent, talk: Talk, *, recent: Recent, can_note: bool) -> Talk:
    """The moment, with who knows of which rollbacks after it. What a sub-agent reads the main agent does not."""
    inner = event.parent
    talk = talk.replace(told=recent.told(is_telling=can_note and inner is None))
    if inner is not None and can_note and recent.moves:
        talk = talk.replace(inner=inner, heard=recent.head)
    return talk


def opening(
    event: HookEvent,
    *,
    recent: Recent,
    can_note: bool,
    pid: int,
    parent: str = "",
    outside: tuple[str, ...] = (),
    beyond: str = "",
) -> Opening:
    """What is written down before a call. `beyond`: more of the data, as JSON text that begins with a comma."""
    turn = turn_of(event, recent.talk)
    talk = talk_at(event, CALL, turn, recent=recent, can_note=can_note)
    window = Window(
        "",
        actor_of(event),
        step_of(event),
        turn=turn,
        pid=pid,
        parent=parent,
        key=key_of(event),
        is_background=event.is_background,
        is_container=event.is_container,
    )
    return Opening(
        f"before {title(describe(event))}",
        note_for(describe(event, is_whole=True), event=event, outside=outside),
        f"{{{talk_json(talk)}{beyond}}}",
        window,
    )
