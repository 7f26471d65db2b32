"""CrewAI: a real crew with a scripted model; hooks that really stop a tool, in both ways that CrewAI calls one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import HookAborted, InterceptionPoint, get_hooks, register_hook, unregister_hook
from crewai.tools import tool

from reprieve.frameworks.crewai import ReprieveHooks

# CrewAI warns of fields of its own that it reads itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


class Script(BaseLLM):
    """Says what it was given to say, one turn per request."""

    turns: list[Any]
    is_native: bool = True
    asked: int = 0

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.asked += 1
        return self.turns.pop(0)

    def supports_function_calling(self) -> bool:
        return self.is_native


Act = tuple[str, dict[str, str]]


def native(*acts: Act) -> list[dict[str, Any]]:
    """Tool calls as a model's API gives them."""
    return [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(acts)
    ]


def in_words(*acts: Act) -> str:
    """A tool call as a model without such an API writes it."""
    ((name, given),) = acts
    return f"Thought: I should act\nAction: {name}\nAction Input: {json.dumps(given)}\n"


WAYS = {"native": native, "in words": in_words}


def crew(desk: Any, *turns: Any, way: str = "native", more: Any = ()) -> Crew:
    @tool("write")
    def write(path: str, text: str) -> str:
        """Write a file."""
        return desk.write(path, text)

    @tool("delete")
    def delete(path: str) -> str:
        """Delete a file."""
        return desk.delete(path)

    @tool("stumble")
    def stumble(path: str) -> str:
        """Begin and fail."""
        return desk.stumble(path)

    script = Script(model="script", turns=[*turns, "Thought: I now can give a great answer\nFinal Answer: done"])
    script.is_native = way == "native"
    agent = Agent(role="worker", goal="work", backstory="works", llm=script, tools=[write, delete, stumble, *more])
    return Crew(agents=[agent], tasks=[Task(description="work", expected_output="done", agent=agent)], cache=False)


def asked(made: Crew) -> int:
    script = made.agents[0].llm
    assert isinstance(script, Script)
    return script.asked


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_calls_and_the_run_are_taken_back(desk: Any, way: str) -> None:
    say: Callable[..., Any] = WAYS[way]
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    made = crew(
        desk, say(("write", {"path": "notes.txt", "text": "two\n"})), say(("delete", {"path": "data.bin"})), way=way
    )
    with ReprieveHooks(desk.ws):
        assert "done" in str(made.kickoff())
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    before_it, sealed = desk.step("delete: data.bin")
    assert sealed.actor == f"crewai:{made.id}"
    desk.ws.rollback(before_it)
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = threading.Barrier(2)

    @tool("slow_write")
    def slow_write(path: str) -> str:
        """Write while the other one does."""
        both.wait(20)
        (desk.root / path).write_text(path)
        desk.note(path)
        both.wait(20)
        return "ok"

    made = crew(desk, native(("slow_write", {"path": "a.txt"}), ("slow_write", {"path": "b.txt"})), more=[slow_write])
    with ReprieveHooks(desk.ws) as hooks:
        made.kickoff()
        assert hooks._calls == {}
    assert set(desk.noted()) == {"a.txt", "b.txt"} and len(set(desk.noted().values())) == 2
    assert {"slow_write: a.txt", "slow_write: b.txt"} <= set(desk.labels())


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    made = crew(desk, native(("stumble", {"path": "notes.txt"})))
    with ReprieveHooks(desk.ws) as hooks:
        made.kickoff()
        assert hooks._calls == {}
    assert desk.ran == ["stumble notes.txt"] and desk.labels()[-1] == "stumble: notes.txt"
    desk.ws.rollback(desk.step("stumble: notes.txt")[0])
    assert desk.contents() == before


def test_without_a_checkpoint_no_tool_is_called_and_the_run_ends(desk: Any, way: str) -> None:
    before = desk.contents()
    made = crew(desk, WAYS[way](("delete", {"path": "data.bin"})), way=way)
    desk.spoil()
    with ReprieveHooks(desk.ws), pytest.raises(HookAborted, match="store"):
        made.kickoff()
    assert desk.ran == [] and desk.contents() == before and asked(made) == 1


def test_a_hook_of_another_that_stops_the_call_or_the_run_leaves_nothing_open(desk: Any) -> None:
    def refuse(context: Any) -> None:
        raise HookAborted("not today")

    with ReprieveHooks(desk.ws) as hooks:
        register_hook(InterceptionPoint.PRE_TOOL_CALL, refuse)
        try:
            crew(desk, native(("delete", {"path": "data.bin"}))).kickoff()
        finally:
            unregister_hook(InterceptionPoint.PRE_TOOL_CALL, refuse)
        assert desk.ran == [] and hooks._calls == {}
    hooks = ReprieveHooks(desk.ws)
    register_hook(InterceptionPoint.POST_TOOL_CALL, refuse)
    try:
        with pytest.raises(HookAborted, match="not today"), hooks:
            crew(desk, native(("write", {"path": "notes.txt", "text": "x"}))).kickoff()
    finally:
        unregister_hook(InterceptionPoint.POST_TOOL_CALL, refuse)
    assert hooks._calls == {} and desk.labels()[-1] == "write: notes.txt (failed)"


def test_after_the_block_nothing_is_hooked(desk: Any) -> None:
    with ReprieveHooks(desk.ws):
        assert get_hooks(InterceptionPoint.PRE_TOOL_CALL) and get_hooks(InterceptionPoint.POST_TOOL_CALL)
    assert not get_hooks(InterceptionPoint.PRE_TOOL_CALL) and not get_hooks(InterceptionPoint.POST_TOOL_CALL)
