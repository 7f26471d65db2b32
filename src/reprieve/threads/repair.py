"""Give every tool call of a conversation a result, and take out results that nobody asked for.

Pure. A model's provider refuses a history in which a call has no result, or a result no call; what a crash or a cut
leaves behind must still be a conversation. Where one may be cut without that is `pairs`'s.

    chat          assistant.tool_calls[].id               ─▶ tool.tool_call_id
    anthropic     assistant.content[type=tool_use].id     ─▶ user.content[type=tool_result].tool_use_id, next message
    responses     type=…_call .call_id                    ─▶ type=…_call_output .call_id
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprieve.threads.pairs import calls_and_results

Message = dict[str, Any]

INTERRUPTED = "There is no result: the call was interrupted, and may or may not have been carried out."


def is_complete(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every call has its result and every result its call."""
    return repair(messages) == list(messages)


def repair(messages: Iterable[Mapping[str, Any]], *, result: str = INTERRUPTED) -> list[Message]:
    """The same with a result for every call that has none, and without results that nobody asked for.

    A result that came late, as when somebody spoke meanwhile, is put where it belongs.
    """
    messages, at = list(messages), 0
    out: list[Message] = []
    open_chat: list[str] = []  # ids of calls that wait, by shape
    open_blocks: list[str] = []
    open_items: dict[str, str] = {}  # with the kind of each

    def close_chat() -> None:
        out.extend(
            _late(messages[at:], id) or {"role": "tool", "tool_call_id": id, "content": result} for id in open_chat
        )
        open_chat.clear()

    def close_items() -> None:
        out.extend(
            _late(messages[at:], id) or {"type": f"{kind}_output", "call_id": id, "output": result}
            for id, kind in open_items.items()
        )
        open_items.clear()

    def missing_blocks() -> list[Message]:
        made: list[Message] = [
            _late(messages[at:], id) or {"type": "tool_result", "tool_use_id": id, "content": result, "is_error": True}
            for id in open_blocks
        ]
        open_blocks.clear()
        return made

    for at, given in enumerate(messages):  # noqa: B007  the functions above read it
        message = dict(given)
        kind, role = str(message.get("type", "")), message.get("role")
        calls, results = calls_and_results(message)
        if results and kind.endswith("_call_output"):
            if open_items.pop(results[0], None) is not None:
                out.append(message)
            continue
        if not kind.endswith("_call") and kind != "reasoning":  # calls of one answer stand side by side
            close_items()
        if role == "tool":
            if message.get("tool_call_id") in open_chat:
                open_chat.remove(str(message["tool_call_id"]))
                out.append(message)
            continue
        close_chat()
        blocks = message.get("content")
        if role == "user" and isinstance(blocks, list):
            kept = []
            for block in blocks:
                if _is(block, "tool_result"):
                    if block.get("tool_use_id") not in open_blocks:
                        continue
                    open_blocks.remove(str(block["tool_use_id"]))
                kept.append(block)
            added = missing_blocks()
            if len(kept) < len(blocks) or added:
                answers = [block for block in kept if _is(block, "tool_result")]  # they have to come first
                message["content"] = [*answers, *added, *(block for block in kept if not _is(block, "tool_result"))]
                if not message["content"]:
                    continue
        elif open_blocks:
            if role == "user":
                message["content"] = [*missing_blocks(), {"type": "text", "text": str(blocks)}]
            else:
                out.append({"role": "user", "content": missing_blocks()})
        out.append(message)
        if kind.endswith("_call"):
            open_items.update(dict.fromkeys(calls, kind))
        if role == "assistant":
            open_chat += [str(call["id"]) for call in message.get("tool_calls") or () if call.get("id")]
            if isinstance(message.get("content"), list):
                open_blocks += [str(block["id"]) for block in message["content"] if _is(block, "tool_use")]
    at = len(messages)
    close_items()
    close_chat()
    if open_blocks:
        out.append({"role": "user", "content": missing_blocks()})
    return out


def _late(later: Sequence[Mapping[str, Any]], id: str) -> Message | None:
    """The result of a call among later messages; what comes after another call of the same id is that one's."""
    for message in later:
        calls, results = calls_and_results(message)
        if id in results:
            blocks = message.get("content") if message.get("role") == "user" else None
            found = (b for b in blocks if _is(b, "tool_result") and b.get("tool_use_id") == id) if blocks else ()
            return dict(next(iter(found), message))
        if id in calls:
            return None
    return None


def _is(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind
