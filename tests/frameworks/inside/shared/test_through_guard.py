"""Frameworks without an adapter, through `guard`: a real agent of each, a scripted model, and tools that are guarded.

AutoGen, LlamaIndex and DSPy take functions. smolagents takes tools, whose `forward` is guarded. The places that look
right are not: DSPy swallows what a callback raises and runs the tool; callbacks of smolagents run after the step.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

Act = tuple[str, dict[str, str]]  # the name of a tool, and what it is given
Turn = list[Act]
Tools = list[Callable[..., str]]


def autogen(desk: Any, turns: list[Turn], tools: Tools) -> list[str]:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage

    nothing = RequestUsage(prompt_tokens=0, completion_tokens=0)
    left: list[Any] = [
        [FunctionCall(id=f"c{at}", name=name, arguments=json.dumps(given)) for at, (name, given) in enumerate(turn)]
        for turn in turns
    ]

    class Script(ChatCompletionClient):
        async def create(self, messages: Any, **_: Any) -> CreateResult:
            said, reason = (left.pop(0), "function_calls") if left else ("done", "stop")
            return CreateResult(finish_reason=reason, content=said, usage=nothing, cached=False)

        def create_stream(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def close(self) -> None: ...

        def actual_usage(self) -> RequestUsage:
            return nothing

        def total_usage(self) -> RequestUsage:
            return nothing

        def count_tokens(self, *_: Any, **__: Any) -> int:
            return 0

        def remaining_tokens(self, *_: Any, **__: Any) -> int:
            return 1000

        @property
        def model_info(self) -> ModelInfo:
            no = {"vision": False, "json_output": False, "structured_output": False}
            return ModelInfo(function_calling=True, family=ModelFamily.UNKNOWN, **no)

        @property
        def capabilities(self) -> Any:
            return self.model_info

    guard = desk.ws.guard(agent="autogen", session="s1")
    agent = AssistantAgent("worker", Script(), tools=[guard(one) for one in tools], max_tool_iterations=5)
    result = asyncio.run(agent.run(task="go"))
    return [each.content for said in result.messages if said.type == "ToolCallExecutionEvent" for each in said.content]


def dspy(desk: Any, turns: list[Turn], tools: Tools) -> list[str]:
    import dspy
    from dspy.utils import DummyLM

    guard = desk.ws.guard(agent="dspy", session="s1")
    program = dspy.ReAct("task -> answer", tools=[guard(one) for one in tools])
    acts = [*(act for turn in turns for act in turn), ("finish", {})]
    said = [{"next_thought": "", "next_tool_name": name, "next_tool_args": given} for name, given in acts]
    with dspy.context(lm=DummyLM([*said, {"reasoning": "it is", "answer": "done"}])):
        seen = program(task="go").trajectory
    return [str(seen[f"observation_{at}"]) for at in range(len(acts) - 1)]


def llama_index(desk: Any, turns: list[Turn], tools: Tools) -> list[str]:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    guard = desk.ws.guard(agent="llama-index", session="s1")
    script = [
        ChatMessage(
            role="assistant",
            blocks=[
                ToolCallBlock(tool_call_id=f"c{at}", tool_name=name, tool_kwargs=given)
                for at, (name, given) in enumerate(turn)
            ],
        )
        for turn in turns
    ]
    script.append(ChatMessage(role="assistant", content="done"))
    model = MockFunctionCallingLLM(response_generator=lambda messages, **_: script.pop(0), is_chat_model=True)

    async def story() -> Any:
        return await FunctionAgent(tools=[guard(one) for one in tools], llm=model, streaming=False).run("go")

    return [str(call.tool_output) for call in asyncio.run(story()).tool_calls]


def smolagents(desk: Any, turns: list[Turn], tools: Tools) -> list[str]:
    from smolagents import ActionStep, ChatMessage, LogLevel, MessageRole, Model, ToolCallingAgent, tool
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

    left = [*turns, [("final_answer", {"answer": "done"})]]

    class Script(Model):
        def generate(self, messages: Any, **_: Any) -> ChatMessage:
            calls = [
                ChatMessageToolCall(ChatMessageToolCallFunction(name=name, arguments=given), f"c{at}", "function")
                for at, (name, given) in enumerate(left.pop(0))
            ]
            return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)

    made = [tool(one) for one in tools]
    for one in made:
        one.forward = desk.ws.guard(name=one.name, agent="smolagents", session="s1")(one.forward)
    agent = ToolCallingAgent(tools=made, model=Script(model_id="script"), verbosity_level=LogLevel.OFF)
    agent.run("go")
    return [str(step.error or step.observations) for step in agent.memory.steps if isinstance(step, ActionStep)]


Play = Callable[[Any, list[Turn], Tools], list[str]]
# LlamaIndex looks at every attribute of its models, old ones of pydantic included.
_old = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
in_parallel = pytest.mark.parametrize(
    "play", [autogen, pytest.param(llama_index, marks=_old), smolagents], ids=lambda play: play.__name__
)
everywhere = pytest.mark.parametrize(
    "play", [autogen, dspy, pytest.param(llama_index, marks=_old), smolagents], ids=lambda play: play.__name__
)


@pytest.fixture
def tools(desk: Any) -> Tools:
    def write(path: str, text: str) -> str:
        """Write a file.

        Args:
            path: where
            text: what
        """
        return desk.write(path, text)

    def delete(path: str) -> str:
        """Delete a file.

        Args:
            path: where
        """
        return desk.delete(path)

    def stumble(path: str) -> str:
        """Begin and fail.

        Args:
            path: where
        """
        return desk.stumble(path)

    return [write, delete, stumble]


@everywhere
def test_calls_and_the_run_are_taken_back(desk: Any, tools: Tools, play: Play) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    play(desk, [[("write", {"path": "notes.txt", "text": "two\n"})], [("delete", {"path": "data.bin"})]], tools)
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == f"{play.__name__.replace('_', '-')}:s1"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


@in_parallel
def test_parallel_calls_are_told_apart(desk: Any, play: Play) -> None:
    both = threading.Barrier(2)

    def slow(path: str) -> str:
        """Write while the other one does.

        Args:
            path: where
        """
        both.wait(20)
        (desk.root / path).write_text(path)
        desk.note(path)
        both.wait(20)
        return "ok"

    play(desk, [[("slow", {"path": "a.txt"}), ("slow", {"path": "b.txt"})]], [slow])
    assert set(desk.noted()) == {"a.txt", "b.txt"} and len(set(desk.noted().values())) == 2
    assert {"slow: a.txt", "slow: b.txt"} <= set(desk.labels())


@everywhere
def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any, tools: Tools, play: Play) -> None:
    before = desk.contents()
    told = play(desk, [[("stumble", {"path": "notes.txt"})]], tools)
    assert "broke off" in told[0] and desk.labels()[-1] == "stumble: notes.txt (failed)"
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


@everywhere
def test_without_a_checkpoint_no_tool_is_called_and_the_model_is_told(desk: Any, tools: Tools, play: Play) -> None:
    before = desk.contents()
    desk.spoil()
    told = play(desk, [[("delete", {"path": "data.bin"})]], tools)
    assert desk.ran == [] and desk.contents() == before and "store" in told[0]
