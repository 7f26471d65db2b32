"""Conversations as agents keep them: where turns begin, which calls belong together, where one may be cut.

Pure: bytes in, bytes out. Nothing here writes to a transcript, least of all to a live one; going back means a *new*
session file that ends earlier (`claude_transcript`, `codex_transcript`, `gemini_transcript`).

A cut is legal where every tool call that is kept has its result, and no message is kept in part:

    prompt ─ say ─ call A ─ call B ─ result A ─ result B ─ say ─ prompt
           ^                                            ^      ^        legal
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from reprieve.errors import BadRef, Misconfigured
from reprieve.model.value import Value


class Message(Value):
    """One line that counts. `group` is the same for lines that are parts of one message of the model."""

    line: int
    id: str | None = None
    turn: str | None = None
    is_prompt: bool = False
    is_turn_start: bool = False
    text: str = ""
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    group: str | None = None


class Transcript(Value):
    """A session: its messages in order, and every line of the file as read (None: not JSON)."""

    agent: str
    session: str
    messages: tuple[Message, ...]
    lines: tuple[dict[str, object] | None, ...]


class Fork(Value):
    """A new session that ends earlier: the file's name and content, and how to go on from there."""

    session: str
    file_name: str
    data: bytes
    kept: int
    dropped: int
    last_message: str | None
    last_turn: str | None
    command: tuple[str, ...]
    gone: frozenset[str] = frozenset()  # calls that are not in it, where it may be cut at one


def read_lines(data: bytes) -> tuple[dict[str, object] | None, ...]:
    """JSON objects, one per line. A last line that is being written, or a damaged one, reads as None."""
    lines: list[dict[str, object] | None] = []
    for line in data.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        lines.append(value if isinstance(value, dict) else None)
    return tuple(lines)


def legal_cuts(messages: Sequence[Message]) -> list[int]:
    """Every number of messages that may be kept, ascending; 0 is always one."""
    cuts = [0]
    waiting: set[str] = set()
    for count, message in enumerate(messages, 1):
        if message.is_prompt:
            # A call that was cancelled has no result, ever; the agent went on without, so may we.
            waiting.clear()
        waiting.update(message.calls)
        waiting.difference_update(message.results)
        follower = messages[count] if count < len(messages) else None
        is_inside = follower is not None and follower.group is not None and follower.group == message.group
        if not waiting and not is_inside:
            cuts.append(count)
    return cuts


def find(
    transcript: Transcript, *, message: str | None = None, call: str | None = None, turn: str | None = None
) -> int:
    """Where a message, the message with a tool call, or the first one of a turn is. Raises BadRef."""
    for index, each in enumerate(transcript.messages):
        if (
            (message is not None and each.id == message)
            or (call is not None and call in each.calls)
            or (turn is not None and each.turn == turn)
        ):
            return index
    what = message or call or turn
    raise BadRef(
        f"the conversation {transcript.session!r} has no {what!r}",
        hints=[
            "agents write their transcript late; try again when the turn is over, or roll back files only (--files)"
        ],
    )


def find_said(there: Sequence[str], said: Sequence[str], nth: int) -> int:
    """Where the prompt `said[nth]` is among `there`, the words of all prompts that the conversation ever had.

    We saw some of those, in their order: not what was said before there was a hook, and of two with the same words in
    a row perhaps one. Words that are there as often as they were seen pair up one by one. Between two such pairs the
    same holds once more; where it does not, nobody can tell which it was. Raises BadRef then.
    """
    pairs: dict[int, int] = {}
    for words in set(said):
        mine, theirs = _all(words, said), _all(words, there)
        if len(mine) == len(theirs):
            pairs.update(zip(mine, theirs, strict=True))
    places = [pairs[index] for index in sorted(pairs)]
    if 0 <= nth < len(said) and places == sorted(places):
        low = max((index for index in pairs if index <= nth), default=-1)
        high = min((index for index in pairs if index > nth), default=len(said))
        if low == nth:
            return pairs[nth]
        mine = [i for i in _all(said[nth], said) if low < i < high]
        theirs = [i for i in _all(said[nth], there) if pairs.get(low, -1) < i < pairs.get(high, len(there))]
        if len(mine) == len(theirs):
            return theirs[mine.index(nth)]
    is_there = 0 <= nth < len(said) and said[nth] in there
    raise BadRef(
        "the conversation has several prompts with these words, and nobody can tell which of them began the turn"
        if is_there
        else "the conversation has no such prompt",
        hints=["go back to another turn (reprieve log), or roll back the files alone: --files"],
    )


def _all(words: str, among: Sequence[str]) -> list[int]:
    return [index for index, each in enumerate(among) if each == words]


def cut_before(transcript: Transcript, index: int) -> int:
    """How many messages to keep so that the one at `index` is not among them: the last legal cut at or before it."""
    return max(count for count in legal_cuts(transcript.messages) if count <= index)


def cut_after(transcript: Transcript, index: int) -> int:
    """How many messages to keep up to and including the one at `index`, or less where that would tear a pair apart."""
    return max(count for count in legal_cuts(transcript.messages) if count <= index + 1)


def need_some(kept: int, session: str) -> None:
    """A session of no messages can't be resumed by any agent."""
    if kept == 0:
        raise Misconfigured(
            f"nothing of the conversation {session!r} comes before that point",
            hints=["start a new session instead; the files can be rolled back by themselves (--files)"],
        )


def text_of(content: object) -> str:
    """The plain text of a message's content, shortened; for people to recognise a turn."""
    if isinstance(content, str):
        return content[:200]
    if isinstance(content, list):
        parts = [b.get("text") for b in content if isinstance(b, dict)]
        return " ".join(p for p in parts if isinstance(p, str))[:200]
    return ""


def dump(lines: Sequence[object]) -> bytes:
    """JSON Lines. Escaped to ASCII, so that half a surrogate in a tool's output can't make it unwritable."""
    return b"".join(json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n" for line in lines)
