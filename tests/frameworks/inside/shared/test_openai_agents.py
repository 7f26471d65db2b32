"""OpenAI Agents SDK: a real Runner with a scripted model; calls are steps, and sessions go back with the files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from agents.exceptions import UserError
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

import agents
import reprieve
from agents import Agent, RunConfig, Runner, function_tool
from reprieve.errors import Conflict, ReprieveError, Usage
from reprieve.frameworks.openai_agents import ReprieveHooks, ReprieveSession
from reprieve.threads.pairs import calls_and_results


def call(name: str, id: str, /, **arguments: str) -> Any:
    return function_call(name, arguments, call_id=id)


def agent_with(turns: list[list[Any]], *functions: Any, is_loud: bool = False) -> Agent:
    """An agent whose model makes these calls, one list per request, and then is done. `is_loud`: errors end the run."""
    error = {"failure_error_function": None} if is_loud else {}
    tools = [function_tool(function, **error) for function in functions]
    return Agent("worker", model=ScriptedModel([*turns, [assistant_message("done")]]), tools=tools)


def run(agent: Agent, hooks: ReprieveHooks, session: Session | None = None) -> Any:
    config = RunConfig(tracing_disabled=True)
    return asyncio.run(Runner.run(agent, "go", hooks=hooks, session=session, run_config=config))


def test_what_is_tested_is_this_clone_with_the_sdk() -> None:
    """The other tests have a folder `agents`; it must not stand before the SDK of that name."""
    assert Path(reprieve.__file__).is_relative_to(Path(__file__).resolve().parents[4] / "src")
    assert Path(agents.__file__).is_relative_to(sys.prefix)


def reprieve_cli(desk: Any, *words: str) -> str:
    command = [sys.executable, "-m", "reprieve", *words]
    return subprocess.run(command, cwd=desk.root, capture_output=True, text=True, check=True).stdout


def test_a_call_and_a_run_are_taken_back(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")
    turns = [
        [call("write", "c-1", path="notes.txt", text="two\n")],
        [call("delete", "c-2", path="data.bin")],
    ]
    with ReprieveHooks(desk.ws, session="chat") as hooks:
        assert run(agent_with(turns, desk.write, desk.delete), hooks).final_output == "done"
    assert desk.ran == ["write notes.txt", "delete data.bin"]
    assert [entry.actor for entry in desk.ws.log(1)] == ["openai-agents:chat"]
    assert desk.labels()[1:] == ["write: notes.txt", "delete: data.bin"]
    desk.ws.rollback("call:c-2")
    assert desk.contents() == {**before, "notes.txt": b"two\n"}
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = threading.Barrier(2)

    def work(path: str) -> str:
        both.wait(20)
        desk.write(path, path)
        both.wait(20)
        return path

    before = desk.contents()
    start = desk.ws.checkpoint("start")
    with ReprieveHooks(desk.ws) as hooks:
        run(agent_with([[call("work", "c-1", path="a"), call("work", "c-2", path="b")]], work), hooks)
    assert sorted(desk.labels()[1:]) == ["work: a", "work: b"] and desk.left_open() == []
    desk.ws.rollback(start)
    assert desk.contents() == before


@pytest.mark.parametrize("is_loud", [False, True], ids=["told to the model", "ends the run"])
def test_a_tool_that_fails_is_sealed_and_can_be_taken_back(desk: Any, is_loud: bool) -> None:
    before = desk.contents()
    agent = agent_with([[call("stumble", "c-1", path="notes.txt")]], desk.stumble, is_loud=is_loud)
    if is_loud:
        with pytest.raises((OSError, UserError), match="the tool broke off"), ReprieveHooks(desk.ws) as hooks:
            run(agent, hooks)
    else:
        with ReprieveHooks(desk.ws) as hooks:
            run(agent, hooks)
    assert desk.labels() == ["stumble: notes.txt" + " (failed)" * is_loud] and desk.left_open() == []
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before


def test_without_a_checkpoint_the_tool_does_not_run(desk: Any) -> None:
    before = desk.contents()
    agent = agent_with([[call("delete", "c-1", path="data.bin")]], desk.delete)
    with ReprieveHooks(desk.ws) as hooks:
        desk.spoil()
        with pytest.raises((ReprieveError, UserError)):
            run(agent, hooks)
    assert desk.ran == [] and desk.contents() == before


def test_a_run_that_is_cancelled_leaves_no_step_open(desk: Any) -> None:
    before = desk.contents()

    async def slow(path: str) -> str:
        desk.write(path, "half of it")
        await asyncio.sleep(60)
        return path

    async def story() -> None:
        with ReprieveHooks(desk.ws) as hooks:
            agent = agent_with([[call("slow", "c-1", path="notes.txt")]], slow)
            run = Runner.run(agent, "go", hooks=hooks, run_config=RunConfig(tracing_disabled=True))
            task = asyncio.create_task(run)
            while not desk.ran:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(story())
    assert desk.left_open() == [] and desk.labels() == ["slow: notes.txt"]
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before


def test_hooks_outside_of_their_block_stop_the_tool(desk: Any) -> None:
    """Nobody would seal what such a call leaves open."""
    agent = agent_with([[call("delete", "c-1", path="data.bin")]], desk.delete)
    with pytest.raises((Usage, UserError)):
        run(agent, ReprieveHooks(desk.ws))
    assert desk.ran == []


# -- the session


def test_the_conversation_and_the_files_go_back_together(desk: Any) -> None:
    session = ReprieveSession("chat", desk.ws)
    assert isinstance(session, Session)
    turns = [[call("write", "c-1", path="notes.txt", text="two\n")]]
    with ReprieveHooks(desk.ws, session="chat") as hooks:
        run(agent_with(turns, desk.write), hooks, session)
        good, said = desk.contents(), asyncio.run(session.get_items())
        assert [item.get("type") or item["role"] for item in said] == [
            "user",
            "function_call",
            "function_call_output",
            "message",
        ]
        point = asyncio.run(session.mark())
        run(agent_with([[call("delete", "c-2", path="data.bin")]], desk.delete), hooks, session)
        bad, more = desk.contents(), asyncio.run(session.get_items())
        rolled = asyncio.run(session.rollback(point))
        assert desk.contents() == good and asyncio.run(session.get_items()) == said
        # nothing is lost by that
        asyncio.run(session.rollback(rolled.before))
        assert desk.contents() == bad and asyncio.run(session.get_items()) == more
        shown = [reprieve_cli(desk, "thread", *words) for words in (("show", "chat"), ("search", "data.bin"))]
        assert f"step {len(more)}" in shown[0] and "chat" in shown[1]
        # and the next run continues what is there
        model = ScriptedModel([[assistant_message("hello again")]])
        run(Agent("worker", model=model), hooks, session)
        assert [dict(item) for item in model.calls[0].input[: len(more)]] == more
    session.close()


def test_a_session_goes_back_to_where_every_call_has_its_result(desk: Any) -> None:
    session = ReprieveSession("chat", desk.ws)

    async def story() -> list[Any]:
        await session.add_items([{"role": "user", "content": "go"}])
        await session.add_items([{"type": "function_call", "call_id": "c-1", "name": "x", "arguments": "{}"}])
        torn = await session.mark()
        await session.add_items([{"type": "function_call_output", "call_id": "c-1", "output": "y"}])
        await session.rollback(torn)
        return await session.get_items()

    assert asyncio.run(story()) == [{"role": "user", "content": "go"}]
    session.close()


def test_a_model_is_never_shown_half_of_a_pair(desk: Any) -> None:
    """Neither where a limit cuts the history, nor after a run that broke off between a call and its result."""
    session = ReprieveSession("chat", desk.ws)
    session.session_settings = SessionSettings(limit=2)
    with ReprieveHooks(desk.ws, session="chat") as hooks:
        run(agent_with([[call("write", "c-1", path="notes.txt", text="two\n")]], desk.write), hooks, session)
        loud = agent_with([[call("stumble", "c-2", path="notes.txt")]], desk.stumble, is_loud=True)
        for limit in (2, None):
            session.session_settings = SessionSettings(limit=limit)
            with pytest.raises((OSError, UserError)):
                run(loud, hooks, session)
            model = ScriptedModel([[assistant_message("hello again")]])
            run(Agent("worker", model=model), hooks, session)
            pairs = [calls_and_results(item) for item in model.calls[0].input]
            assert {id for calls, _ in pairs for id in calls} == {id for _, results in pairs for id in results}
            loud = agent_with([[call("stumble", "c-3", path="notes.txt")]], desk.stumble, is_loud=True)
    session.close()


def test_a_conflict_moves_neither_files_nor_conversation(desk: Any) -> None:
    session = ReprieveSession("chat", desk.ws)
    point = asyncio.run(session.mark())
    with ReprieveHooks(desk.ws, session="chat") as hooks:
        run(agent_with([[call("write", "c-1", path="notes.txt", text="two\n")]], desk.write), hooks, session)
    (desk.root / "notes.txt").write_text("mine\n")
    said = asyncio.run(session.get_items())
    with pytest.raises(Conflict):
        asyncio.run(session.rollback(point))
    assert (desk.root / "notes.txt").read_text() == "mine\n" and asyncio.run(session.get_items()) == said
    session.close()


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_session_does_what_the_protocol_says(tmp_path: Path, kind: str) -> None:
    where = None if kind == "memory" else tmp_path / "state"
    session = ReprieveSession("one", where)
    items = [{"role": "user", "content": str(n)} for n in range(5)]

    async def story() -> None:
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.add_items(items[:2])
        await session.add_items(items[2:])
        await session.add_items([])
        assert await session.get_items() == items
        assert await session.get_items(2) == items[3:] and await session.get_items(0) == []
        assert await session.get_items(99) == items
        assert await session.pop_item() == items[4]
        before = await session.mark()
        await session.clear_session()
        assert await session.get_items() == []
        await session.rollback(before)
        assert await session.get_items() == items[:4]

    asyncio.run(story())
    session.close()
    if where is not None:
        again = ReprieveSession("one", where)
        assert asyncio.run(again.get_items()) == items[:4]
        other = ReprieveSession("two", where)
        assert asyncio.run(other.get_items()) == []
        other.close()
        again.close()


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    sessions = [ReprieveSession("one", tmp_path / "state") for _ in range(4)]

    async def story() -> None:
        await asyncio.gather(
            *(
                session.add_items([{"role": "user", "content": f"{at} {n}"}])
                for n in range(10)
                for at, session in enumerate(sessions)
            )
        )

    asyncio.run(story())
    said = [item["content"] for item in asyncio.run(sessions[0].get_items())]
    assert sorted(said) == sorted(f"{at} {n}" for n in range(10) for at in range(4))
    for session in sessions:
        session.close()
