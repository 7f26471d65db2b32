"""Pydantic AI: a real agent with a scripted model; every tool call is a step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, repair_messages
from pydantic_ai.models.function import AgentInfo, FunctionModel

from reprieve.errors import ReprieveError
from reprieve.frameworks.pydantic_ai import ReprieveCapability


def call(name: str, id: str, /, **arguments: str) -> ToolCallPart:
    return ToolCallPart(name, arguments, id)


def guarded(desk: Any, turns: list[list[ToolCallPart]], *functions: Any) -> Agent[None, str]:
    """An agent whose model makes these calls, one list per request, and then is done."""
    left = [ModelResponse(list(each)) for each in turns]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return left.pop(0) if left else ModelResponse([TextPart("done")])

    return Agent(FunctionModel(answer), tools=functions, capabilities=[ReprieveCapability(desk.ws)])


def test_a_call_and_a_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    turns = [
        [call("write", "c-1", path="notes.txt", text="two\n")],
        [call("delete", "c-2", path="data.bin")],
    ]
    agent = guarded(desk, turns, desk.write, desk.delete)
    agent.run_sync("go", conversation_id="chat")
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    assert [entry.actor for entry in desk.ws.log(1)] == ["pydantic-ai:chat"]
    desk.ws.rollback("call:c-2")
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    """Both are under way at once, and what each does is in its own step."""
    here: list[str] = []

    async def work(path: str) -> str:
        here.append(path)
        while len(here) < 2:
            await asyncio.sleep(0.001)
        desk.note(path)
        desk.write(path, path)
        return path

    before = desk.contents()
    start = desk.ws.checkpoint("start")
    guarded(desk, [[call("work", "c-1", path="a"), call("work", "c-2", path="b")]], work).run_sync("go")
    assert desk.noted() == {"a": "call:c-1", "b": "call:c-2"}
    assert sorted(desk.labels()[1:]) == ["work: a", "work: b"] and desk.left_open() == []
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_a_tool_that_fails_is_sealed_and_can_be_taken_back(desk: Any) -> None:
    before = desk.contents()
    with pytest.raises(OSError, match="the tool broke off"):
        guarded(desk, [[call("stumble", "c-1", path="notes.txt")]], desk.stumble).run_sync("go")
    assert desk.labels() == ["stumble: notes.txt (failed)"] and desk.left_open() == []
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before


def test_a_call_that_the_model_is_asked_to_repeat_is_a_step_of_its_own(desk: Any) -> None:
    def picky(path: str) -> str:
        if desk.write(path, path) and path == "wrong":
            raise ModelRetry("not that one")
        return path

    turns = [[call("picky", "c-1", path="wrong")], [call("picky", "c-2", path="right")]]
    guarded(desk, turns, picky).run_sync("go")
    assert desk.labels() == ["picky: wrong (failed)", "picky: right"] and desk.left_open() == []
    desk.ws.undo("call:c-1")
    assert "wrong" not in desk.contents() and desk.contents()["right"] == b"right"


def test_without_a_checkpoint_the_tool_does_not_run(desk: Any) -> None:
    before = desk.contents()
    agent = guarded(desk, [[call("delete", "c-1", path="data.bin")]], desk.delete)
    desk.spoil()
    with pytest.raises(ReprieveError):
        agent.run_sync("go")
    assert desk.ran == [] and desk.contents() == before


def test_a_history_that_is_cut_before_a_result_goes_on_once_it_is_repaired(desk: Any) -> None:
    """What the guide says about going back in the middle of a run."""
    turns = [[call("write", "c-1", path="notes.txt", text="two\n")]]
    messages = guarded(desk, turns, desk.write).run_sync("go").all_messages()
    desk.ws.rollback("call:c-1")
    cut = messages[:2]  # ends with the call
    with pytest.raises(UserError):
        guarded(desk, [], desk.write).run_sync("again", message_history=cut)
    whole = repair_messages(cut)
    assert any(isinstance(part, ToolReturnPart) for message in whole for part in message.parts)
    assert guarded(desk, [], desk.write).run_sync("again", message_history=whole).output == "done"
