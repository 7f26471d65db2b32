"""Calls and results of tools: complete, or repaired, in each provider's shape."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.threads.repair import INTERRUPTED, is_complete, repair

USER: dict[str, Any] = {"role": "user", "content": "go"}


def chat(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function"} for id in ids]}


def tool(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "done"}


def uses(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "x", "input": {}} for id in ids]}


def results(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "done"} for id in ids]}


def call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "x", "arguments": "{}"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "done"}


COMPLETE: dict[str, list[dict[str, Any]]] = {
    "chat": [USER, chat("a", "b"), tool("b"), tool("a"), {"role": "assistant", "content": "ok"}, USER],
    "anthropic": [USER, uses("a", "b"), results("a", "b"), {"role": "assistant", "content": "ok"}],
    "responses": [USER, call("a"), call("b"), output("a"), output("b"), {"role": "assistant", "content": "ok"}],
    "plain": [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "hello"}],
    "empty": [],
}


@pytest.mark.parametrize("name", COMPLETE)
def test_what_is_complete_stays_as_it_is(name: str) -> None:
    assert repair(COMPLETE[name]) == COMPLETE[name] and is_complete(COMPLETE[name])


@pytest.mark.parametrize("name", COMPLETE)
def test_cut_anywhere_it_is_complete_after_a_repair(name: str) -> None:
    """Every prefix and every suffix, and each with one message missing."""
    whole = COMPLETE[name]
    for start in range(len(whole)):
        for end in range(start, len(whole) + 1):
            for gone in range(start, end + 1):
                some = [*whole[start:gone], *whole[gone + 1 : end]]
                fixed = repair(some)
                assert is_complete(fixed), (some, fixed)
                assert repair(fixed) == fixed


def test_a_missing_result_says_that_it_is_missing() -> None:
    assert repair([chat("a", "b"), tool("b"), USER])[2] == {"role": "tool", "tool_call_id": "a", "content": INTERRUPTED}
    blocks = repair([uses("a"), USER])[1]["content"]
    assert blocks[0]["tool_use_id"] == "a" and blocks[0]["is_error"] and blocks[1] == {"type": "text", "text": "go"}
    assert repair([uses("a")])[1]["role"] == "user"
    assert repair([call("a")])[1]["output"] == INTERRUPTED


def test_a_result_that_nobody_asked_for_goes() -> None:
    assert repair([tool("x"), output("y"), results("z"), USER]) == [USER]
    mixed = results("z")
    mixed["content"].append({"type": "text", "text": "and this"})
    assert repair([mixed]) == [{"role": "user", "content": [{"type": "text", "text": "and this"}]}]


def test_what_is_given_is_not_changed() -> None:
    given = [uses("a"), results("z")]
    repair(given)
    assert given == [uses("a"), results("z")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([chat("1"), USER, tool("1")], [chat("1"), tool("1"), USER]),
        (
            [call("1"), {"type": "message", "role": "assistant", "content": "I call"}, output("1")],
            [call("1"), output("1"), {"type": "message", "role": "assistant", "content": "I call"}],
        ),
        (
            [uses("1"), USER, results("1")],
            [uses("1"), {"role": "user", "content": [*results("1")["content"], {"type": "text", "text": "go"}]}],
        ),
    ],
    ids=["chat", "responses", "anthropic"],
)
def test_a_result_that_came_late_is_not_called_missing(
    given: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    """Somebody spoke while the tool ran; a model that is told of no result would call it again."""
    assert repair(given) == expected and is_complete(expected)


@pytest.mark.parametrize("between", [[], [USER]], ids=["at once", "later"])
def test_a_result_belongs_to_the_newest_call_of_its_id(between: list[dict[str, Any]]) -> None:
    missing = {"role": "tool", "tool_call_id": "1", "content": INTERRUPTED}
    assert repair([chat("1"), *between, chat("1"), tool("1")]) == [chat("1"), missing, *between, chat("1"), tool("1")]
