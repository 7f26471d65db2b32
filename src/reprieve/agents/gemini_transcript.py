"""Gemini CLI's session files: a log of messages by id, and of what became of them.

    {"id": …}                     a message, or what it reads now
    {"$rewindTo": id}             this one and all after it are gone; an id that is not there empties the chat
    {"$set": {"messages": […]}}   these are all that there are now: the chat was summarised
    {"$patch": {…}}               the same in newer versions: messages that changed, went, or moved

`fork` makes a session of what was there when a prompt was said: one line per message, as Gemini itself writes a chat
that it moves from an older format, and as each of its versions reads it. A `$rewindTo` of ours in the only copy would
be neither: in some versions a summary outranks it, and nothing takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reprieve.agents.transcript import Fork, dump, need_some, read_lines, text_of
from reprieve.errors import BadRef, Misconfigured
from reprieve.model.value import Value

Record = dict[str, object]

# What Gemini does not count when it decides whether a chat can be resumed.
_NOT_SAID = ("/", "?", "<session_context>", "<hook_context>")


class Chat(Value):
    """One log: what it says about the session, its records in order, and every prompt that ever was in it, by id."""

    session: str
    about: Record
    records: tuple[Record, ...]
    prompts: dict[str, str]


def parse(data: bytes) -> Chat:
    """Read a log. Raises Misconfigured if it is none that Gemini would resume."""
    records = tuple(record for line in read_lines(data) if line for record in _apart(line))
    about: Record = {}
    for record in records:
        update = record.get("$set")
        if isinstance(update, dict):
            about.update(update)
        elif _is_about(record):
            about.update(record)
    session = about.get("sessionId")
    if not isinstance(session, str) or not about.get("projectHash") or about.get("kind") == "subagent":
        raise Misconfigured("the transcript does not begin like one of Gemini CLI")
    prompts: dict[str, str] = {}
    for record in records:
        if (name := _name(record)) and record.get("type") == "user":
            prompts.setdefault(name, text_of(record.get("content")))
    return Chat(session, about, records, prompts)


def fork(chat: Chat, message: str, *, title: str, now: str, new_id: Callable[[], str]) -> Fork:
    """A session of what was there before a message was said. `now` is ISO 8601 with Z, `new_id` makes UUIDs.

    Also where the message is part of a summary by now; not where the chat was rewound behind it. Raises BadRef then.
    """
    there, rewound = _replay(chat.records)
    at = next((n for n, record in enumerate(chat.records) if _name(record) == message), None)
    if not message or at is None or (message in rewound and message not in there):
        raise BadRef(
            "the chat has no such message, or it was taken back already",
            hints=["roll back the files alone: --files, then /rewind in Gemini CLI"],
        )
    kept, _ = _replay(chat.records[:at])
    need_some(len(kept) if any(map(_is_said, kept.values())) else 0, chat.session)
    session = new_id()
    head: Record = {
        "sessionId": session,
        "projectHash": chat.about["projectHash"],
        "startTime": now,
        "lastUpdated": now,
        **{key: chat.about[key] for key in ("kind", "directories") if key in chat.about},
        "summary": title,
    }
    return Fork(
        session=session,
        file_name=f"session-{now[:16].replace(':', '-')}-{session[:8]}.jsonl",
        data=dump([head, *kept.values()]),
        kept=len(kept),
        dropped=sum(name not in kept for name in there),
        last_message=list(kept)[-1],
        last_turn=None,
        command=("gemini", "--resume", session),
    )


def _apart(line: Record) -> Iterator[Record]:
    """A line; one that holds a whole chat of an older format is as many as it has messages."""
    messages = line.get("messages")
    if not _is_about(line) or not isinstance(messages, list):
        yield line
        return
    yield {key: value for key, value in line.items() if key != "messages"}
    yield from (each for each in messages if isinstance(each, dict))


def _name(record: Record) -> str:
    """The id of the message that a record is, "" if it is none."""
    name = record.get("id")
    return name if isinstance(name, str) and "$patch" not in record and "$rewindTo" not in record else ""


def _is_about(record: Record) -> bool:
    return not _name(record) and isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str)


def _is_said(message: Record) -> bool:
    text = text_of(message.get("content")).strip()
    if message.get("type") == "user":
        return bool(text) and not text.startswith(_NOT_SAID)
    return message.get("type") == "gemini" and bool(text or message.get("toolCalls") or message.get("thoughts"))


def _replay(records: Sequence[Record]) -> tuple[dict[str, Record], set[str]]:
    """The messages that are there after these records, in order, and the ids of those that were rewound."""
    there: dict[str, Record] = {}
    rewound: set[str] = set()
    for record in records:
        target, patch, update = record.get("$rewindTo"), record.get("$patch"), record.get("$set")
        if isinstance(target, str):
            names = list(there)
            kept = names[: names.index(target)] if target in there else []
            rewound.update(names[len(kept) :])
            there = {name: there[name] for name in kept}
        elif isinstance(patch, dict):
            there = _patched(there, patch)
        elif name := _name(record):
            there[name] = record
        elif isinstance(update, dict) and isinstance(update.get("messages"), list):
            there = {name: message for message in _dicts(update["messages"]) if (name := _name(message))}
    return there, rewound


def _patched(there: dict[str, Record], patch: Record) -> dict[str, Record]:
    there = dict(there)
    for change in (patch, *_dicts(patch.get("updates"))):
        name = change.get("id")
        if isinstance(name, str) and name in there:
            there[name] = _changed(there[name], change)
    gone = _texts(patch.get("removeIds"))
    last = [name for name in _texts(patch.get("orderIds")) if name in there]
    order = (*(name for name in there if name not in set(last)), *last)
    return {name: there[name] for name in order if name not in set(gone)}


def _changed(message: Record, change: Record) -> Record:
    if "content" in change:
        message = {**message, "content": change["content"]}
    results = {str(call.get("id")): call["result"] for call in _dicts(change.get("toolCalls")) if "result" in call}
    calls = _dicts(message.get("toolCalls"))
    if message.get("type") != "gemini" or not results or not calls:
        return message
    return {
        **message,
        "toolCalls": [{**c, "result": results[i]} if (i := str(c.get("id"))) in results else c for c in calls],
    }


def _dicts(value: object) -> list[Record]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
