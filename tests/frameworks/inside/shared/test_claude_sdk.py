"""Claude Agent SDK: the real program with a scripted model on loopback, and hooks and store by the SDK's own types."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, get_session_messages_from_store, query
from claude_agent_sdk.testing import run_session_store_conformance

from reprieve.frameworks.claude_sdk import ReprieveSessionStore, reprieve_hooks

_spec = importlib.util.spec_from_file_location(
    "scripted", Path(__file__).resolve().parents[3] / "agents" / "scripted.py"
)
assert _spec is not None and _spec.loader is not None
scripted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scripted)  # its package is called as the OpenAI SDK is

MADE = "made.txt"  # what the scripted model's one shell call makes


# -- hooks, as the SDK calls them


class Caller:
    """Calls the hooks as the SDK does, for one session."""

    def __init__(self, desk: Any) -> None:
        self.hooks = reprieve_hooks(desk.ws)

    async def tell(self, event: str, call: str | None = None, **said: Any) -> dict[str, Any]:
        (matcher,) = self.hooks[event]
        assert matcher.matcher is None and matcher.on_failure == "block"
        (hook,) = matcher.hooks
        shared = {"session_id": "s1", "transcript_path": "", "cwd": "", "hook_event_name": event}
        if call:
            shared["tool_use_id"] = call
        answer: Any = await hook({**shared, **said}, call, {"signal": None})
        assert isinstance(answer, dict)  # None would block
        return answer

    async def run(self, call: str, tool: Any, *, agent: str = "", **arguments: str) -> dict[str, Any]:
        """One tool call, as the program makes it."""
        whose = {"agent_id": agent} if agent else {}
        said = {"tool_name": tool.__name__, "tool_input": arguments, **whose}
        answer = await self.tell("PreToolUse", call, **said)
        if answer:
            return answer
        try:
            done = await asyncio.to_thread(tool, **arguments)
        except OSError as error:
            return await self.tell("PostToolUseFailure", call, **said, error=str(error))
        return await self.tell("PostToolUse", call, **said, tool_response=done)


def test_calls_are_steps_and_a_failing_one_is_sealed(desk: Any) -> None:
    before = desk.contents()

    async def story() -> None:
        caller = Caller(desk)
        await caller.tell("UserPromptSubmit", prompt="go")
        await caller.run("c-1", desk.write, path="notes.txt", text="two\n")
        await caller.run("c-2", desk.delete, path="data.bin")
        await caller.run("c-3", desk.stumble, path="notes.txt")
        await caller.tell("Stop", stop_hook_active=False)

    asyncio.run(story())
    assert desk.labels() == ["write: notes.txt", "delete: data.bin", "stumble: notes.txt (failed)"]
    assert [entry.actor for entry in desk.ws.log(1)] == ["claude-sdk:s1"] and desk.left_open() == []
    desk.ws.rollback("call:c-3")
    assert desk.contents()["notes.txt"] == b"two\n" and "data.bin" not in desk.contents()
    desk.ws.rollback("call:c-1")
    assert desk.contents() == before


def test_parallel_calls_and_those_of_sub_agents_are_told_apart(desk: Any) -> None:
    before = desk.contents()
    start = desk.ws.checkpoint("start")

    async def story() -> None:
        caller = Caller(desk)
        for call, agent in (("c-1", ""), ("c-2", ""), ("c-3", "a-1")):
            whose = {"agent_id": agent} if agent else {}
            await caller.tell("PreToolUse", call, tool_name="Bash", tool_input={"command": call}, **whose)
        assert desk.left_open() == ["call:c-1", "call:c-2", "call:c-3"]
        desk.write("a", "a")
        await caller.tell("PostToolUse", "c-1", tool_name="Bash", tool_input={}, tool_response="")
        # c-2 was denied by somebody: nobody tells its end. The sub-agent goes on.
        await caller.tell("Stop", stop_hook_active=False)
        assert desk.left_open() == ["call:c-3"]
        await caller.tell(
            "SubagentStop", stop_hook_active=False, agent_id="a-1", agent_type="", agent_transcript_path=""
        )

    asyncio.run(story())
    assert desk.left_open() == [] and sorted(desk.labels()[1:]) == ["Bash: c-1", "Bash: c-2", "Bash: c-3"]
    desk.ws.rollback(start)
    assert desk.contents() == before


def test_without_a_checkpoint_the_call_is_denied_with_the_reason(desk: Any) -> None:
    caller = Caller(desk)
    desk.spoil()
    answer = asyncio.run(caller.run("c-1", desk.delete, path="data.bin"))["hookSpecificOutput"]
    assert (answer["hookEventName"], answer["permissionDecision"]) == ("PreToolUse", "deny")
    assert "could not take a checkpoint" in answer["permissionDecisionReason"] and desk.ran == []


# -- the store


def test_the_store_keeps_all_contracts_of_the_sdk(tmp_path: Path) -> None:
    stores: list[ReprieveSessionStore] = []

    def make() -> ReprieveSessionStore:
        stores.append(ReprieveSessionStore(tmp_path / str(len(stores))))
        return stores[-1]

    asyncio.run(run_session_store_conformance(make))
    for store in stores:
        store.close()


def test_lines_that_come_twice_are_kept_once(tmp_path: Path) -> None:
    store = ReprieveSessionStore()
    key: Any = {"project_key": "p", "session_id": "s"}

    async def story() -> None:
        await store.append(key, [{"type": "x", "uuid": "1"}, {"type": "title"}])
        await store.append(key, [{"type": "x", "uuid": "1"}, {"type": "x", "uuid": "2"}, {"type": "title"}])
        said = await store.load(key)
        assert said is not None and [line.get("uuid") for line in said] == ["1", None, "2", None]

    asyncio.run(story())
    store.close()


def test_sub_agents_go_back_with_their_session(desk: Any) -> None:
    store = ReprieveSessionStore(desk.ws)
    key: Any = {"project_key": "p", "session_id": "s"}
    sub: Any = {**key, "subpath": "subagents/agent-1"}

    async def story() -> None:
        await store.append(key, [{"type": "user", "uuid": "1", "message": {"role": "user", "content": "go"}}])
        await store.append(sub, [{"type": "x", "uuid": "s1"}])
        point = await store.mark("s")
        await store.append(sub, [{"type": "x", "uuid": "s2"}])
        await store.append(key, [{"type": "user", "uuid": "2", "message": {"role": "user", "content": "more"}}])
        await store.rollback("s", point)
        said, its = await store.load(key), await store.load(sub)
        assert said is not None and [line["uuid"] for line in said] == ["1"]
        assert its is not None and [line["uuid"] for line in its] == ["s1"]

    asyncio.run(story())
    store.close()


# -- the real program


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE")):
            monkeypatch.delenv(name)
    with scripted.scripted_model() as model:
        for name, value in scripted.claude_variables(model, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield model


async def ask(desk: Any, prompt: str, **options: Any) -> str:
    """One run of Claude in the project; its session."""
    how = ClaudeAgentOptions(
        hooks=reprieve_hooks(desk.ws),
        cwd=desk.root,
        allowed_tools=["Bash"],
        model="sonnet",
        setting_sources=[],
        **options,
    )
    results = [message async for message in query(prompt=prompt, options=how) if isinstance(message, ResultMessage)]
    return results[-1].session_id


def test_claude_runs_a_command_that_is_taken_back_and_goes_on_from_there(desk: Any, model: Any) -> None:
    before = desk.contents()
    store = ReprieveSessionStore(desk.ws)

    async def story() -> None:
        session = await ask(desk, "first prompt", session_store=store)
        assert desk.contents() == {**before, MADE: b"hi\n"}
        assert next(desk.ws.log(1)).actor == f"claude-sdk:{session}" and desk.left_open() == []
        (call,) = {entry.step for entry in desk.ws.log() if entry.step.startswith("call:")}
        desk.ws.rollback(call)
        assert desk.contents() == before
        point = await store.mark(session)
        await ask(desk, "second prompt", session_store=store, resume=session)
        assert desk.contents() == {**before, MADE: b"hi\n"}
        await store.rollback(session, point)
        assert desk.contents() == before
        said = str(await get_session_messages_from_store(store, session, directory=str(desk.root)))
        assert "first prompt" in said and "second prompt" not in said
        model.asked.clear()
        await ask(desk, "third prompt", session_store=store, resume=session)
        heard = str([asked["messages"] for asked in model.asked])
        assert "first prompt" in heard and "third prompt" in heard and "second prompt" not in heard

    asyncio.run(story())
    store.close()


@pytest.mark.parametrize("how", ["damaged", "absent"])
def test_claude_does_not_run_a_command_without_a_checkpoint(desk: Any, model: Any, how: str) -> None:
    """Nor if the hook itself fails, with an error that it does not answer."""
    before = desk.contents()
    if how == "damaged":
        desk.spoil()
    else:
        desk.ws = None
    asyncio.run(ask(desk, "make it"))
    heard = str([asked["messages"] for asked in model.asked])
    assert desk.contents() == before and "tool_result" in heard
    if how == "damaged":
        assert "could not take a checkpoint" in heard
