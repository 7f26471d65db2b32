"""Claude Code's session files: a tree of lines linked by uuid, of which the conversation is one path.

Forking gives every line a new uuid in a new session, as Claude's own SDK does; `claude --resume` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable

from reprieve.agents.transcript import Fork, Message, Transcript, dump, need_some, read_lines, text_of
from reprieve.errors import Misconfigured

_KINDS = ("user", "assistant", "system", "attachment")
# Belongs to the session that it came from: a team, a plan file.
_LEFT_BEHIND = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")


def parse(data: bytes) -> Transcript:
    """Read a session file. Raises Misconfigured if there is no conversation in it."""
    lines = read_lines(data)
    places = {str(line["uuid"]): n for n, line in enumerate(lines) if line and isinstance(line.get("uuid"), str)}
    chosen = _conversation(lines, places)
    if not chosen:
        raise Misconfigured("no conversation was found in the transcript")
    session = next((s for n in chosen if isinstance(s := _at(lines, n).get("sessionId"), str)), "")
    return Transcript(
        agent="claude-code",
        session=session,
        messages=tuple(_message(n, _at(lines, n)) for n in chosen),
        lines=lines,
    )


def prompts(transcript: Transcript) -> tuple[Message, ...]:
    """Everything that a person ever said in the session, also on branches that were left by /rewind."""
    own = ((n, line) for n, line in enumerate(transcript.lines) if line and line.get("uuid"))
    found = (_message(n, line) for n, line in own if line.get("type") in _KINDS and not line.get("isSidechain"))
    return tuple(message for message in found if message.is_prompt)


def _at(lines: tuple[dict[str, object] | None, ...], n: int) -> dict[str, object]:
    return lines[n] or {}


def _blocks(line: dict[str, object]) -> list[dict[str, object]]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _ids(line: dict[str, object], kind: str, field: str) -> tuple[str, ...]:
    return tuple(i for b in _blocks(line) if b.get("type") == kind and isinstance(i := b.get(field), str))


def _group(line: dict[str, object]) -> str | None:
    """The model's message id: Claude writes one line per block of a message."""
    message = line.get("message")
    found = message.get("id") if line.get("type") == "assistant" and isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def _message(n: int, line: dict[str, object]) -> Message:
    results = _ids(line, "tool_result", "tool_use_id")
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    is_prompt = (
        line.get("type") == "user"
        and not results
        and not line.get("isMeta")
        and not line.get("isCompactSummary")
        and not text_of(content).startswith("[Request interrupted by user")
    )
    turn = line.get("promptId")
    return Message(
        line=n,
        id=str(line.get("uuid")),
        turn=turn if isinstance(turn, str) else None,
        is_prompt=is_prompt,
        is_turn_start=is_prompt,
        text=text_of(content) if is_prompt else "",
        calls=_ids(line, "tool_use", "id"),
        results=results,
        group=_group(line),
    )


def _conversation(lines: tuple[dict[str, object] | None, ...], places: dict[str, int]) -> list[int]:
    """Lines of the path that ends in the newest message, in file order.

    Branches that were left by /rewind stay out. A turn with parallel calls is not a path: the parts of its message and
    the results of its calls hang beside it, and are taken in by the ids that tie them together.
    """
    newest = next(
        (
            n
            for n in reversed(range(len(lines)))
            if _at(lines, n).get("type") in ("user", "assistant")
            and isinstance(_at(lines, n).get("uuid"), str)
            and not _at(lines, n).get("isSidechain")
        ),
        None,
    )
    path: set[int] = set()
    while newest is not None and newest not in path:
        path.add(newest)
        line = _at(lines, newest)
        # A compaction starts a new root and names what it came after.
        parent = line.get("parentUuid") or line.get("logicalParentUuid")
        newest = places.get(parent) if isinstance(parent, str) else None
    groups = {g for n in path if (g := _group(_at(lines, n)))}
    own = [(n, each) for n, each in enumerate(lines) if each and not each.get("isSidechain") and each.get("uuid")]
    path.update(n for n, each in own if _group(each) in groups)
    calls = {c for n in path for c in _ids(_at(lines, n), "tool_use", "id")}
    path.update(n for n, each in own if calls.intersection(_ids(each, "tool_result", "tool_use_id")))
    return sorted(n for n in path if _at(lines, n).get("type") in _KINDS)


def fork(transcript: Transcript, keep: int, *, title: str, now: str, new_id: Callable[[], str]) -> Fork:
    """A session of the first `keep` messages. `now` is ISO 8601, `new_id` makes UUIDs."""
    need_some(keep, transcript.session)
    session = new_id()
    kept = transcript.messages[:keep]
    renamed = {message.id: new_id() for message in kept}
    parents = {
        line["uuid"]: line.get("parentUuid") for line in transcript.lines if line and isinstance(line.get("uuid"), str)
    }
    calls = {call for message in kept for call in (*message.calls, *message.results)}
    out: list[dict[str, object]] = []
    for message in kept:
        line = _at(transcript.lines, message.line)
        parent = line.get("parentUuid")
        seen: set[object] = set()
        while parent is not None and parent not in renamed and parent not in seen:
            # The parent is a line that only the screen needs (progress): the next one above it, then.
            seen.add(parent)
            parent = parents.get(parent)
        copy = {key: value for key, value in line.items() if key not in _LEFT_BEHIND}
        copy.update(
            uuid=renamed[message.id],
            parentUuid=renamed.get(parent) if isinstance(parent, str) else None,
            sessionId=session,
            isSidechain=False,
            forkedFrom={"sessionId": transcript.session, "messageUuid": message.id},
        )
        if "logicalParentUuid" in line:
            copy["logicalParentUuid"] = renamed.get(str(line["logicalParentUuid"]))
        out.append(copy)
    # The newest time marks where to resume.
    out[-1]["timestamp"] = now
    out += _replacements(transcript, calls, session, new_id, now)
    out.append({"type": "custom-title", "sessionId": session, "customTitle": title, "uuid": new_id(), "timestamp": now})
    return Fork(
        session=session,
        file_name=f"{session}.jsonl",
        data=dump(out),
        kept=keep,
        dropped=len(transcript.messages) - keep,
        last_message=kept[-1].id,
        last_turn=next((m.turn for m in reversed(kept) if m.turn), None),
        command=("claude", "--resume", session),
        gone=frozenset(call for message in transcript.messages[keep:] for call in message.calls),
    )


def _replacements(
    transcript: Transcript, calls: set[str], session: str, new_id: Callable[[], str], now: str
) -> list[dict[str, object]]:
    """What Claude put in the place of results that were too long to send again, for the calls that are kept."""
    found: list[object] = []
    for line in transcript.lines:
        if line and line.get("type") == "content-replacement" and isinstance(line.get("replacements"), list):
            items = line["replacements"]
            assert isinstance(items, list)
            found += [i for i in items if not isinstance(i, dict) or i.get("toolUseId", "") in {*calls, ""}]
    if not found:
        return []
    return [{
        "type": "content-replacement", "sessionId": session, "replacements": found, "uuid": new_id(), "timestamp": now,
    }]  # fmt: skip
