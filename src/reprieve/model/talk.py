"""Where a conversation stood at a checkpoint: session, turn, message, call. Part of the checkpoint's data.

    {"talk":{"who":"claude-code:8f2c","turn":3,"turn_id":"prompt_3","call":"toolu_7", …}, …}

Hooks read it back to count turns and to know what an agent has been told; `rollback --conversation` to know where to
cut.
"""

from __future__ import annotations

from reprieve.model.value import Value

PROMPT, CALL, END = "prompt", "call", "end"

_TALK = '"talk":{'


class Talk(Value):
    """One moment of one session."""

    who: str  # the session's actor, without sub-agent
    at: str  # PROMPT, CALL (just before it) or END (of a call)
    turn: int = 0  # that the session is in, counted from 1
    told: int = 0  # the agent knows of every rollback up to this entry
    turn_id: str = ""  # as the agent names the turn
    message: str = ""  # as the agent names the message
    call: str = ""  # as the agent names the call
    key: str = ""  # what pairs a call's end with its beginning where there is no name
    transcript: str = ""  # where the agent keeps the conversation
    is_guess: bool = False  # the call's end was not reported, only concluded
    inner: str = ""  # the sub-agent that is told of rollbacks in the answer; `told` is the main agent's
    heard: int = 0  # up to which entry the sub-agent knows of them


def talk_json(talk: Talk) -> str:
    """The field for a checkpoint's data, without braces around it."""
    from reprieve.model.quickjson import dumps

    fields = talk.given()
    return f'"talk":{dumps(fields, is_compact=True)}'


def has_talk(data: str) -> bool:
    """Whether the data of a checkpoint says where a conversation stood."""
    return _TALK in data


def talk_of(data: str, who: str = "") -> Talk | None:
    """What the data of a checkpoint says (of that session), None if nothing."""
    at = data.find(_TALK)
    if at < 0 or (who and f'"who":"{who}"' not in data):
        return None
    from reprieve.model.quickjson import loads

    try:
        fields = loads(data)
        talk = Talk(**fields["talk"]) if isinstance(fields, dict) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # a row that cannot be read says nothing about a conversation
    return talk if talk is not None and (not who or talk.who == who) else None
