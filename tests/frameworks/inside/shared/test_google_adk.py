"""Google ADK: a real Runner with a scripted model, and files that go back with its sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import ToolContext
from google.genai import types

from reprieve.errors import Conflict, Usage
from reprieve.frameworks.google_adk import ReprievePlugin


class Script(BaseLlm):
    """Says what it was given to say, one turn per request."""

    model: str = "script"
    turns: list[list[types.Part]]
    meanwhile: Any = None  # what happens while it thinks

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        if self.meanwhile:
            self.meanwhile()
        yield LlmResponse(content=types.Content(role="model", parts=self.turns.pop(0)))


def call(name: str, /, id: str = "", **arguments: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments, id=id or None))


def say(text: str) -> types.Part:
    return types.Part(text=text)


class World:
    """An app with one agent, and its sessions."""

    def __init__(self, desk: Any, *plugins: BasePlugin, tools: Any = None) -> None:
        self.desk, self.script, self.plugin = desk, Script(turns=[]), ReprievePlugin(desk.ws)
        tools = tools or [desk.write, desk.delete, desk.stumble]
        app = App(
            name="app",
            root_agent=LlmAgent(name="worker", model=self.script, tools=tools),
            plugins=[self.plugin, *plugins],
        )
        self.sessions = InMemorySessionService()
        self.runner = Runner(app=app, session_service=self.sessions)

    async def begin(self, **state: Any) -> str:
        session = await self.sessions.create_session(app_name="app", user_id="u", state=state)
        return session.id

    async def run(self, session: str, *turns: list[types.Part]) -> str:
        """One run of these turns; its invocation id."""
        self.script.turns.extend(turns)
        message = types.Content(role="user", parts=[say("go")])
        ids = {
            event.invocation_id
            async for event in self.runner.run_async(user_id="u", session_id=session, new_message=message)
        }
        (only,) = ids
        return only

    async def rewind(self, session: str, before: str) -> Any:
        return await self.plugin.rewind(self.runner, user_id="u", session_id=session, before=before)

    async def session(self, id: str) -> Any:
        return await self.sessions.get_session(app_name="app", user_id="u", session_id=id)


def test_a_call_is_taken_back_and_the_run_before_it_stays(desk: Any) -> None:
    async def story() -> None:
        world = World(desk)
        session = await world.begin()
        await world.run(session, [call("write", path="notes.txt", text="two\n")], [say("done")])
        good = desk.contents()
        await world.run(
            session,
            [call("delete", id="c-1", path="data.bin")],
            [call("write", id="c-2", path="new.txt", text="x")],
            [say("done")],
        )
        assert desk.ran == ["write notes.txt", "delete data.bin", "write new.txt"]
        desk.ws.rollback("call:c-2")
        assert "new.txt" not in desk.contents() and "data.bin" not in desk.contents()
        desk.ws.rollback("call:c-1")
        assert desk.contents() == good

    asyncio.run(story())


def test_a_run_goes_back_with_its_files_its_state_and_what_was_said(desk: Any) -> None:
    def remember(key: str, value: str, tool_context: ToolContext) -> str:
        """Keep a value."""
        tool_context.state[key] = value
        return "kept"

    async def story() -> None:
        world = World(desk, tools=[desk.write, desk.delete, remember])
        session = await world.begin(tenant="acme")
        before = desk.contents()
        await world.run(session, [call("remember", key="user:colour", value="red")], [say("done")])
        bad = await world.run(
            session,
            [
                call("write", path="notes.txt", text="bad\n"),
                call("delete", path="data.bin"),
                call("remember", key="user:colour", value="blue"),
                call("remember", key="tenant", value="other"),
            ],
            [say("done")],
        )
        assert (await world.session(session)).state["tenant"] == "other"
        rewound = await world.rewind(session, bad)
        assert desk.contents() == before
        assert {b"data.bin", b"notes.txt"} <= set(rewound.files.restored) and rewound.kept == ()
        state = (await world.session(session)).state
        assert {key: value for key, value in state.items() if value is not None} == {
            "tenant": "acme",
            "user:colour": "red",
        }
        # and it goes on: the model is not shown what was taken back
        await world.run(session, [call("write", path="notes.txt", text="good\n")], [say("done")])
        assert desk.contents() == {**before, "notes.txt": b"good\n"}

    asyncio.run(story())


def test_what_another_session_changed_since_is_left_alone_and_named(desk: Any) -> None:
    def remember(key: str, value: str, tool_context: ToolContext) -> str:
        """Keep a value."""
        tool_context.state[key] = value
        return "kept"

    async def story() -> None:
        world = World(desk, tools=[remember])
        first, second = await world.begin(), await world.begin()
        bad = await world.run(first, [call("remember", key="user:colour", value="blue")], [say("done")])
        await world.run(second, [call("remember", key="user:colour", value="green")], [say("done")])
        rewound = await world.rewind(first, bad)
        assert rewound.kept == ("user:colour",)
        assert (await world.session(first)).state["user:colour"] == "green"

    asyncio.run(story())


def test_a_rewind_that_cannot_be_done_moves_nothing(desk: Any) -> None:
    async def story() -> None:
        world = World(desk)
        session = await world.begin()
        run = await world.run(session, [call("write", path="notes.txt", text="two\n")], [say("done")])
        (desk.root / "notes.txt").write_text("a person's\n")
        said = len((await world.session(session)).events)
        with pytest.raises(Usage):
            await world.rewind(session, "another")
        with pytest.raises(Conflict):
            await world.rewind(session, run)
        assert (desk.root / "notes.txt").read_text() == "a person's\n"
        assert len((await world.session(session)).events) == said

    asyncio.run(story())


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = asyncio.Barrier(2)

    async def slow_write(path: str, text: str) -> str:
        """Writes while the other one does."""
        await both.wait()
        (desk.root / path).write_text(text)
        desk.note(path)
        await both.wait()
        return "ok"

    async def story() -> None:
        world = World(desk, tools=[slow_write])
        calls = [call("slow_write", id=f"p-{name}", path=f"{name}.txt", text=name) for name in ("a", "b")]
        await world.run(await world.begin(), calls, [say("done")])
        assert desk.noted() == {"a.txt": "call:p-a", "b.txt": "call:p-b"}
        assert {"slow_write: a.txt", "slow_write: b.txt"} <= set(desk.labels()) and desk.left_open() == []

    asyncio.run(story())


def test_a_tool_that_fails_is_sealed_and_taken_back(desk: Any) -> None:
    async def story() -> None:
        world = World(desk)
        session = await world.begin()
        before = desk.contents()
        with pytest.raises(OSError, match="broke off"):
            await world.run(session, [call("stumble", id="s-1", path="notes.txt")], [say("done")])
        assert desk.labels()[-1] == "stumble: notes.txt (failed)" and desk.left_open() == []
        desk.ws.rollback("call:s-1")
        assert desk.contents() == before

    asyncio.run(story())


def test_a_call_that_is_cancelled_is_sealed(desk: Any) -> None:
    begun = asyncio.Event()

    async def wait(path: str) -> str:
        """Writes, then waits for ever."""
        (desk.root / path).write_text("begun")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def story() -> None:
        world = World(desk, tools=[wait])
        run = asyncio.create_task(world.run(await world.begin(), [call("wait", path="w.txt")], [say("done")]))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert desk.labels()[-1] == "wait: w.txt (failed)" and desk.left_open() == []

    asyncio.run(story())


def test_what_another_plugin_leaves_open_is_sealed_when_the_run_ends(desk: Any) -> None:
    class Clumsy(BasePlugin):
        async def before_tool_callback(self, **_: Any) -> None:
            raise ValueError("clumsy")

    async def story() -> None:
        world = World(desk, Clumsy(name="clumsy"))
        with pytest.raises(RuntimeError, match="clumsy"):
            await world.run(await world.begin(), [call("write", path="notes.txt", text="x")], [say("done")])
        assert desk.ran == [] and desk.left_open() == []
        assert desk.labels()[-1].startswith("write: notes.txt")

    asyncio.run(story())


def test_what_a_run_that_was_cancelled_before_the_tool_leaves_open_is_sealed_in_the_end(desk: Any) -> None:
    begun = asyncio.Event()

    class Slow(BasePlugin):
        async def before_tool_callback(self, **_: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

    async def story() -> None:
        world = World(desk, Slow(name="slow"))
        run = asyncio.create_task(world.run(await world.begin(), [call("delete", path="data.bin")], [say("done")]))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await world.runner.close()
        assert desk.ran == [] and desk.left_open() == []

    asyncio.run(story())


def test_without_a_checkpoint_no_tool_is_called(desk: Any) -> None:
    async def story() -> None:
        world = World(desk)
        session = await world.begin()
        before = desk.contents()
        world.script.meanwhile = desk.spoil
        with pytest.raises(RuntimeError, match="reprieve"):
            await world.run(session, [call("delete", path="data.bin")], [say("done")])
        assert desk.ran == [] and desk.contents() == before

    asyncio.run(story())


def test_without_a_checkpoint_no_run_begins(desk: Any) -> None:
    async def story() -> None:
        world = World(desk)
        session = await world.begin()
        desk.spoil()
        with pytest.raises(RuntimeError, match="reprieve"):
            await world.run(session, [call("delete", path="data.bin")], [say("done")])
        assert desk.ran == [] and len(world.script.turns) == 2 and not (await world.session(session)).events

    asyncio.run(story())
