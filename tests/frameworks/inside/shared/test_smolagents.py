"""smolagents through `guard`: a real ToolCallingAgent with a scripted model, whose tools' `forward` is guarded."""

from __future__ import annotations

import threading
from typing import Any

from smolagents import ChatMessage, LogLevel, MessageRole, Model, Tool, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction


class Script(Model):
    """Says what it was given to say, one turn per request."""

    def __init__(self, *turns: list[ChatMessageToolCall]) -> None:
        super().__init__(model_id="script")
        self.turns = list(turns)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=self.turns.pop(0))


def call(name: str, /, **arguments: str) -> ChatMessageToolCall:
    function = ChatMessageToolCallFunction(name=name, arguments=arguments)
    return ChatMessageToolCall(function=function, id=f"c-{arguments}", type="function")


def guarded(desk: Any, made: Tool) -> Tool:
    made.forward = desk.ws.guard(name=made.name, agent="smolagents", session="s1")(made.forward)
    return made


def run(desk: Any, *turns: Any, more: Any = ()) -> ToolCallingAgent:
    @tool
    def write(path: str, text: str) -> str:
        """Write a file.

        Args:
            path: where
            text: what
        """
        return desk.write(path, text)

    @tool
    def delete(path: str) -> str:
        """Delete a file.

        Args:
            path: where
        """
        return desk.delete(path)

    @tool
    def stumble(path: str) -> str:
        """Begin and fail.

        Args:
            path: where
        """
        return desk.stumble(path)

    tools = [guarded(desk, made) for made in (write, delete, stumble, *more)]
    agent = ToolCallingAgent(
        tools=tools, model=Script(*turns, [call("final_answer", answer="done")]), verbosity_level=LogLevel.OFF
    )
    assert agent.run("go") == "done"
    return agent


def test_calls_and_the_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    run(desk, [call("write", path="notes.txt", text="two\n")], [call("delete", path="data.bin")])
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == "smolagents:s1"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = threading.Barrier(2)

    @tool
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

    run(desk, [call("slow", path="a.txt"), call("slow", path="b.txt")], more=[slow])
    assert set(desk.noted()) == {"a.txt", "b.txt"} and len(set(desk.noted().values())) == 2


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    agent = run(desk, [call("stumble", path="notes.txt")])
    assert "broke off" in str(agent.memory.steps[1].error)
    assert desk.labels()[-1].endswith("(failed)")
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


def test_without_a_checkpoint_no_tool_is_called_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    desk.spoil()
    agent = run(desk, [call("delete", path="data.bin")])
    assert desk.ran == [] and desk.contents() == before and "store" in str(agent.memory.steps[1].error)
