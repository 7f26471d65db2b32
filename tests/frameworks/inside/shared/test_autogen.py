"""AutoGen through `guard`: a real AssistantAgent with a scripted client, whose tools are guarded functions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage

NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Script(ChatCompletionClient):
    """Says what it was given to say, one turn per request."""

    def __init__(self, *turns: str | list[FunctionCall]) -> None:
        self.turns = list(turns)

    async def create(self, messages: Any, **_: Any) -> CreateResult:
        turn = self.turns.pop(0)
        reason = "stop" if isinstance(turn, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=turn, usage=NOTHING, cached=False)

    def create_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def actual_usage(self) -> RequestUsage:
        return NOTHING

    def total_usage(self) -> RequestUsage:
        return NOTHING

    def count_tokens(self, *_: Any, **__: Any) -> int:
        return 0

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        return 1000

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=False,
            family=ModelFamily.UNKNOWN,
            structured_output=False,
        )

    @property
    def capabilities(self) -> Any:
        return self.model_info


def call(name: str, /, **arguments: str) -> FunctionCall:
    return FunctionCall(id=f"c-{name}-{len(arguments)}", name=name, arguments=json.dumps(arguments))


def run(desk: Any, *turns: Any, tools: list[Callable[..., Any]] | None = None) -> TaskResult:
    guard = desk.ws.guard(agent="autogen", session="s1")
    agent = AssistantAgent(
        "worker",
        Script(*turns),
        tools=[guard(one) for one in tools or [desk.write, desk.delete, desk.stumble]],
        max_tool_iterations=5,
    )
    return asyncio.run(agent.run(task="go"))


def test_calls_and_the_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    run(desk, [call("write", path="notes.txt", text="two\n")], [call("delete", path="data.bin")], "done")
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == "autogen:s1"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = threading.Barrier(2)

    def slow(path: str) -> str:
        """Writes while the other one does."""
        both.wait(20)
        (desk.root / path).write_text(path)
        desk.note(path)
        both.wait(20)
        return "ok"

    def left(path: str) -> str:
        """One of two."""
        return slow(path)

    def right(path: str) -> str:
        """The other one."""
        return slow(path)

    run(desk, [call("left", path="a.txt"), call("right", path="b.txt")], "done", tools=[left, right])
    assert set(desk.noted()) == {"a.txt", "b.txt"} and len(set(desk.noted().values())) == 2
    assert {"left: a.txt", "right: b.txt"} <= set(desk.labels())


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    assert run(desk, [call("stumble", path="notes.txt")], "I see").messages[-1].content == "I see"
    assert desk.labels()[-1] == "stumble: notes.txt (failed)"
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


def test_without_a_checkpoint_no_tool_is_called_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    desk.spoil()
    result = run(desk, [call("delete", path="data.bin")], "I see")
    assert desk.ran == [] and desk.contents() == before
    told = next(message for message in result.messages if message.type == "ToolCallExecutionEvent").content[0]
    assert told.is_error and "store" in told.content
