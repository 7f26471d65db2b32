"""Codex's rollout files: a log of items in turns.

Codex's own way back is `thread/fork` of its app server, which ends at a whole turn; `fork_request` says it. A file is
for when no Codex is there to ask (`fork`); it ends at whole turns too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reprieve.agents.transcript import Fork, Message, Transcript, dump, need_some, read_lines, text_of
from reprieve.errors import Misconfigured

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
_STARTS = ("task_started", "turn_started")
_ENDS = ("task_complete", "turn_complete", "turn_aborted")


def parse(data: bytes) -> Transcript:
    """Read a rollout file. Raises Misconfigured if it is none."""
    lines = read_lines(data)
    meta = next((_payload(line) for line in lines if line and line.get("type") == "session_meta"), None)
    session = meta.get("id") if meta else None
    if not isinstance(session, str):
        raise Misconfigured("the transcript does not begin like one of Codex")
    messages: list[Message] = []
    turn: str | None = None  # None: between turns
    has_prompt = False
    for n, line in enumerate(lines):
        if not line or line.get("type") == "session_meta":
            continue
        payload = _payload(line)
        kind = _event(line, payload)
        if kind == "thread_rolled_back":
            # The mark goes with the turns that it takes back: in a fork it would take back others.
            messages, turn = _rolled_back(messages, payload.get("num_turns")), None
            continue
        named = payload.get("turn_id")
        # Older versions write no start of a turn; there the prompt is the first sign of one.
        is_prompted = kind == "user_message" and (turn is None or has_prompt)
        if kind in _STARTS or is_prompted:
            turn, has_prompt = named if isinstance(named, str) else f"line-{n}", False
        has_prompt = has_prompt or kind == "user_message"
        messages.append(_message(n, line, payload, turn, kind in _STARTS))
        if is_prompted:
            _begin_earlier(messages, lines)
        if kind in _ENDS:
            turn = None
    return Transcript(agent="codex", session=session, messages=tuple(messages), lines=lines)


def _begin_earlier(messages: list[Message], lines: Sequence[dict[str, object] | None]) -> None:
    """Have the turn of the last message begin with what was sent to the model for it.

    The event that tells of a prompt comes after the prompt itself: cut there, it would still be asked.
    """
    turn, at = messages[-1].turn, len(messages) - 1
    while at and not messages[at - 1].is_turn_start and _is_sent(lines[messages[at - 1].line] or {}):
        at -= 1
        messages[at] = messages[at].replace(turn=turn)
    messages[at] = messages[at].replace(is_turn_start=True)


def _is_sent(line: dict[str, object]) -> bool:
    """Whether it is a prompt as the model gets it, or the settings of a turn."""
    payload = _payload(line)
    is_said = payload.get("type") == "message" and payload.get("role") in ("user", "developer")
    return (line.get("type") == "response_item" and is_said) or line.get("type") == "turn_context"


def _payload(line: dict[str, object]) -> dict[str, object]:
    payload = line.get("payload")
    return payload if isinstance(payload, dict) else {}


def _event(line: dict[str, object], payload: dict[str, object]) -> object:
    """The kind of event that a line reports, None if it is no event."""
    if line.get("type") != "event_msg":
        return None
    item = payload.get("item")
    # How newer versions report a prompt.
    if payload.get("type") == "item_completed" and isinstance(item, dict) and item.get("type") == "UserMessage":
        return "user_message"
    return payload.get("type")


def _message(n: int, line: dict[str, object], payload: dict[str, object], turn: str | None, starts: bool) -> Message:
    kind, call, item = payload.get("type"), payload.get("call_id"), payload.get("item")
    is_item = line.get("type") == "response_item"
    is_prompt = _event(line, payload) == "user_message"
    said = item.get("content") if isinstance(item, dict) else payload.get("message")
    ids = (call,) if is_item and isinstance(call, str) else ()
    return Message(
        line=n,
        id=payload["id"] if isinstance(payload.get("id"), str) else None,  # type: ignore[arg-type]
        turn=turn,
        is_prompt=is_prompt,
        is_turn_start=starts,
        text=text_of(said) if is_prompt else "",
        calls=ids if kind in _CALLS else (),
        results=ids if kind in _RESULTS else (),
    )


def _rolled_back(messages: list[Message], turns: object) -> list[Message]:
    """Codex marks turns as taken back instead of deleting them."""
    for _ in range(turns if isinstance(turns, int) and not isinstance(turns, bool) else 0):
        start = next((i for i in reversed(range(len(messages))) if messages[i].is_turn_start), None)
        if start is None:
            break
        messages = messages[:start]
    return messages


def turn_cut(transcript: Transcript, index: int) -> int:
    """How many messages to keep so that the turn of the one at `index` is not among them."""
    while index > 0 and not transcript.messages[index].is_turn_start:
        index -= 1
    return index


def last_turn(transcript: Transcript, keep: int) -> str | None:
    """The last turn that is kept; None: none is."""
    return next((m.turn for m in reversed(transcript.messages[:keep]) if m.turn), None)


def fork_request(transcript: Transcript, keep: int) -> dict[str, object]:
    """Method and parameters for Codex's app server. Raises Misconfigured if no turn would be left."""
    turn = last_turn(transcript, keep)
    need_some(0 if turn is None or turn.startswith("line-") else keep, transcript.session)
    return {"method": "thread/fork", "params": {"threadId": transcript.session, "lastTurnId": turn}}


def _moved(line: dict[str, object], old: str, new: str) -> dict[str, object]:
    """The line as one of the new session."""
    payload = _payload(line)
    ours = {key: new for key in ("thread_id", "session_id") if payload.get(key) == old}
    return {**line, "payload": {**payload, **ours}} if ours else line


def _numbered(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Codex numbers its lines without gaps."""
    return [{**line, "ordinal": n} if "ordinal" in line else line for n, line in enumerate(lines)]


def fork(transcript: Transcript, keep: int, *, now: str, new_id: Callable[[], str]) -> Fork:
    """A session of the first `keep` messages. `now` is ISO 8601 with milliseconds and Z."""
    need_some(keep if last_turn(transcript, keep) else 0, transcript.session)
    session = new_id()
    kept = transcript.messages[:keep]
    meta = next(line for line in transcript.lines if line and line.get("type") == "session_meta")
    head = {
        **meta,
        "timestamp": now,
        "payload": {**_payload(meta), "id": session, "timestamp": now, "forked_from_id": transcript.session},
    }
    if "session_id" in _payload(meta):
        head["payload"]["session_id"] = session  # type: ignore[index]
    body = [_moved(transcript.lines[m.line] or {}, transcript.session, session) for m in kept]
    stamp = now.partition(".")[0].removesuffix("Z").replace(":", "-")
    return Fork(
        session=session,
        file_name=f"rollout-{stamp}-{session}.jsonl",
        data=dump(_numbered([head, *body])),
        kept=keep,
        dropped=len(transcript.messages) - keep,
        last_message=next((m.id for m in reversed(kept) if m.id), None),
        last_turn=last_turn(transcript, keep),
        command=("codex", "resume", session),
    )
