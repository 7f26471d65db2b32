"""LangChain and deepagents: real agents with a scripted model; every tool call is a step."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from reprieve.errors import ReprieveError
from reprieve.frameworks.langchain import ReprieveMiddleware
from reprieve.frameworks.langgraph import ReprieveSaver


class Script(FakeMessagesListChatModel):
    """Says what it was given to say, one message per request."""

    def bind_tools(self, tools: Any, **_: Any) -> Script:
        return self


def call(name: str, id: str, /, **arguments: str) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": id}


def turns(*calls: list[dict[str, Any]]) -> Script:
    said = [AIMessage("", tool_calls=each) for each in calls]
    return Script(responses=[*said, AIMessage("done")])


def run(agent: Any, is_async: bool, thread: str = "t1") -> Any:
    config = {"configurable": {"thread_id": thread}}
    if is_async:
        return asyncio.run(agent.ainvoke({"messages": [("user", "go")]}, config))
    return agent.invoke({"messages": [("user", "go")]}, config)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def guarded(desk: Any, script: Script, *functions: Any, **options: Any) -> Any:
    tools = [StructuredTool.from_function(function, description="A tool.") for function in functions]
    return create_agent(script, tools, middleware=[ReprieveMiddleware(desk.ws)], **options)


def test_a_call_and_a_run_are_taken_back(desk: Any, is_async: bool) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    script = turns(
        [call("write", "c-1", path="notes.txt", text="two\n")],
        [call("delete", "c-2", path="data.bin")],
    )
    run(guarded(desk, script, desk.write, desk.delete), is_async)
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    assert [entry.actor for entry in desk.ws.log(1)] == ["langchain:t1"]
    assert b"data.bin" in desk.ws.rollback("call:c-2").restored
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any, is_async: bool) -> None:
    """Both are under way at once, and what each does is in its own step."""
    both = threading.Barrier(2)

    def work(path: str) -> str:
        both.wait(20)
        desk.note(path)
        desk.write(path, path)
        both.wait(20)
        return path

    before = desk.contents()
    start = desk.ws.checkpoint("start")
    script = turns([call("work", "c-1", path="a"), call("work", "c-2", path="b")])
    run(guarded(desk, script, work), is_async)
    assert desk.noted() == {"a": "call:c-1", "b": "call:c-2"}
    assert sorted(desk.labels()[1:]) == ["work: a", "work: b"] and desk.left_open() == []
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_a_tool_that_fails_is_sealed_and_can_be_taken_back(desk: Any, is_async: bool) -> None:
    before = desk.contents()
    script = turns([call("stumble", "c-1", path="notes.txt")])
    with pytest.raises(OSError, match="the tool broke off"):
        run(guarded(desk, script, desk.stumble), is_async)
    assert desk.labels() == ["stumble: notes.txt (failed)"] and desk.left_open() == []
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before


def test_without_a_checkpoint_the_tool_does_not_run(desk: Any, is_async: bool) -> None:
    before = desk.contents()
    script = turns([call("delete", "c-1", path="data.bin")])
    agent = guarded(desk, script, desk.delete)
    desk.spoil()
    with pytest.raises(ReprieveError):
        run(agent, is_async)
    assert desk.ran == [] and desk.contents() == before


def test_files_and_messages_go_back_together_with_the_saver(desk: Any) -> None:
    before = desk.contents()
    script = turns([call("write", "c-1", path="notes.txt", text="two\n")])
    with ReprieveSaver(desk.ws) as saver:
        agent = guarded(desk, script, desk.write, checkpointer=saver)
        config = {"configurable": {"thread_id": "t1"}}
        agent.invoke({"messages": [("user", "go")]}, config, durability="sync")
        assert [m.type for m in agent.get_state(config).values["messages"]] == ["human", "ai", "tool", "ai"]
        first = next(s for s in agent.get_state_history(config) if len(s.values.get("messages", ())) == 1)
        saver.rollback_to("t1", first.config["configurable"]["checkpoint_id"], files=True)
        assert [m.type for m in agent.get_state(config).values["messages"]] == ["human"]
    assert desk.contents() == before


def test_the_tools_of_a_deep_agent_are_guarded(desk: Any) -> None:
    """Its own file tools, too, on a backend of real files."""
    before = desk.contents()
    script = turns(
        [call("write_file", "c-1", file_path="/new.txt", content="new")],
        [call("edit_file", "c-2", file_path="/notes.txt", old_string="one", new_string="two")],
    )
    agent = create_deep_agent(
        script,
        backend=FilesystemBackend(root_dir=desk.root, virtual_mode=True),
        middleware=[ReprieveMiddleware(desk.ws, session="deep")],
    )
    agent.invoke({"messages": [("user", "go")]})
    assert desk.contents() == {**before, "new.txt": b"new", "notes.txt": b"two\n"}
    assert [entry.actor for entry in desk.ws.log(1)] == ["langchain:deep"]
    desk.ws.rollback("call:c-2")
    assert desk.contents() == {**before, "new.txt": b"new"}
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before
