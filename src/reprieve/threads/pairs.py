"""Which tool calls of a conversation have their results, and so where it may be cut.

Models refuse a history in which a call has no result or a result no call. Reads three forms of messages: items of
OpenAI's Responses (`call_id`), messages of chat completions (`tool_calls`, `tool_call_id`), and Anthropic's content
blocks (`tool_use`, `tool_result`), plain or as Claude's transcripts wrap them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def calls_and_results(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of the calls that a message makes, and of those that it answers."""
    said = list(_said(message))
    return tuple(id for kind, id in said if kind == "call"), tuple(id for kind, id in said if kind == "result")


def legal_cuts(messages: Sequence[Message]) -> list[int]:
    """Every number of messages that may be kept, ascending; 0 is always one."""
    cuts = [0]
    waiting: set[str] = set()
    for count, message in enumerate(messages, 1):
        calls, results = calls_and_results(message)
        if not calls and not results and _unwrapped(message).get("role") == "user":
            waiting.clear()  # a call that was cancelled has no result, ever; the agent went on without, so may we
        waiting.update(calls)
        waiting.difference_update(results)
        if not waiting:
            cuts.append(count)
    return cuts


def _said(message: Message) -> Iterator[tuple[str, str]]:
    kind, id = str(message.get("type", "")), message.get("call_id")
    if isinstance(id, str) and kind.endswith(("_call", "_call_output")):
        yield ("result" if kind.endswith("_output") else "call"), id
    for call in _mappings(message.get("tool_calls")):
        yield "call", str(call.get("id"))
    if isinstance(message.get("tool_call_id"), str):
        yield "result", message["tool_call_id"]
    for block in _mappings(_unwrapped(message).get("content")):
        if block.get("type") == "tool_use":
            yield "call", str(block.get("id"))
        elif block.get("type") == "tool_result":
            yield "result", str(block.get("tool_use_id"))


def _unwrapped(message: Message) -> Message:
    inner = message.get("message")
    return inner if isinstance(inner, Mapping) else message


def _mappings(value: object) -> list[Message]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
