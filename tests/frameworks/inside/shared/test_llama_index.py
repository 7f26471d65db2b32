"""LlamaIndex through `guard`: a real FunctionAgent with a scripted model, whose tools are guarded functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM

# LlamaIndex looks at every attribute of its models, old ones of pydantic included.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def call(name: str, /, **arguments: str) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=f"c-{name}", tool_name=name, tool_kwargs=arguments)


def run(desk: Any, *turns: list[ToolCallBlock], tools: list[Callable[..., Any]] | None = None) -> Any:
    guard = desk.ws.guard(agent="llama-index", session="s1")
    script = [ChatMessage(role="assistant", blocks=turn) for turn in turns]
    script.append(ChatMessage(role="assistant", content="done"))
    model = MockFunctionCallingLLM(response_generator=lambda messages, **_: script.pop(0), is_chat_model=True)

    async def story() -> Any:
        tools_ = [guard(one) for one in tools or [desk.write, desk.delete, desk.stumble]]
        return await FunctionAgent(tools=tools_, llm=model, streaming=False).run("go")

    return asyncio.run(story())


def test_calls_and_the_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    run(desk, [call("write", path="notes.txt", text="two\n")], [call("delete", path="data.bin")])
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == "llama-index:s1"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    async def story(path: str, both: asyncio.Barrier) -> str:
        await both.wait()
        (desk.root / path).write_text(path)
        desk.note(path)
        await both.wait()
        return "ok"

    both = asyncio.Barrier(2)

    async def left(path: str) -> str:
        """One of two."""
        return await story(path, both)

    async def right(path: str) -> str:
        """The other one."""
        return await story(path, both)

    run(desk, [call("left", path="a.txt"), call("right", path="b.txt")], tools=[left, right])
    assert set(desk.noted()) == {"a.txt", "b.txt"} and len(set(desk.noted().values())) == 2
    assert {"left: a.txt", "right: b.txt"} <= set(desk.labels())


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    result = run(desk, [call("stumble", path="notes.txt")])
    assert result.tool_calls[0].tool_output.is_error
    assert desk.labels()[-1] == "stumble: notes.txt (failed)"
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


def test_without_a_checkpoint_no_tool_is_called_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    desk.spoil()
    result = run(desk, [call("delete", path="data.bin")])
    assert desk.ran == [] and desk.contents() == before
    assert result.tool_calls[0].tool_output.is_error and "store" in str(result.tool_calls[0].tool_output)
