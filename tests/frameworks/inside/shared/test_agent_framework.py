"""Microsoft Agent Framework: real agents and workflows with a scripted client; both stop where nothing protects."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    FunctionInvocationLayer,
    Message,
    MiddlewareFailure,
    WorkflowBuilder,
    WorkflowCheckpointException,
    WorkflowContext,
    handler,
    response_handler,
    tool,
)

from reprieve.errors import Usage
from reprieve.frameworks.agent_framework import NotKept, ReprieveCheckpoints, ReprieveMiddleware


class Script(FunctionInvocationLayer, BaseChatClient):
    """Says what it was given to say, one turn per request."""

    def __init__(self, *turns: list[Content]) -> None:
        super().__init__()
        self.turns, self.asked = list(turns), 0

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        self.asked += 1
        return ChatResponse(messages=[Message(role="assistant", contents=self.turns.pop(0))])


def call(name: str, /, id: str = "c", **arguments: str) -> Content:
    return Content.from_function_call(call_id=id, name=name, arguments=arguments)


def say(text: str) -> Content:
    return Content.from_text(text)


def worker(desk: Any, *turns: list[Content], tools: Any = None) -> Agent:
    made = [tool(one, approval_mode="never_require") for one in tools or [desk.write, desk.delete, desk.stumble]]
    return Agent(client=Script(*turns), name="worker", tools=made, middleware=[ReprieveMiddleware(desk.ws)])


def test_calls_and_the_run_are_taken_back(desk: Any) -> None:
    async def story() -> None:
        before = desk.contents()
        start = desk.ws.checkpoint("start")
        agent = worker(
            desk,
            [call("write", id="c-1", path="notes.txt", text="two\n")],
            [call("delete", id="c-2", path="data.bin")],
            [say("done")],
        )
        session = agent.create_session()
        await agent.run("go", session=session)
        assert desk.ran == ["write notes.txt", "delete data.bin"]
        assert next(iter(desk.ws.log())).actor == f"agent-framework:{session.session_id}"
        desk.ws.rollback("call:c-2")
        assert desk.contents() == {**before, "notes.txt": b"two\n"}
        desk.ws.rollback(start)
        assert desk.contents() == before

    asyncio.run(story())


def test_parallel_calls_are_told_apart(desk: Any) -> None:
    both = threading.Barrier(2)

    def slow_write(path: str, text: str) -> str:
        """Writes while the other one does."""
        both.wait(20)
        (desk.root / path).write_text(text)
        desk.note(path)
        both.wait(20)
        return "ok"

    calls = [call("slow_write", id=f"p-{name}", path=f"{name}.txt", text=name) for name in ("a", "b")]
    asyncio.run(worker(desk, calls, [say("done")], tools=[slow_write]).run("go"))
    assert desk.noted() == {"a.txt": "call:p-a", "b.txt": "call:p-b"}
    assert {"slow_write: a.txt", "slow_write: b.txt"} <= set(desk.labels())


def test_a_tool_that_fails_is_sealed_and_the_model_is_told(desk: Any) -> None:
    before = desk.contents()
    agent = worker(desk, [call("stumble", id="s-1", path="notes.txt")], [say("I see")])
    assert asyncio.run(agent.run("go")).text == "I see"
    assert desk.labels()[-1] == "stumble: notes.txt (failed)"
    desk.ws.rollback("call:s-1")
    assert desk.contents() == before


def test_an_error_of_ours_that_a_tool_raises_is_the_tools(desk: Any) -> None:
    def ask() -> str:
        """Uses the workspace, wrongly."""
        desk.ws.rollback("no-such-checkpoint")
        return "never"

    agent = worker(desk, [call("ask")], [say("I see")], tools=[ask])
    assert asyncio.run(agent.run("go")).text == "I see"


def test_without_a_checkpoint_no_tool_is_called_and_the_run_ends(desk: Any) -> None:
    before = desk.contents()
    agent = worker(desk, [call("delete", path="data.bin")], [say("done")])
    desk.spoil()
    with pytest.raises(MiddlewareFailure, match="store"):
        asyncio.run(agent.run("go"))
    assert desk.ran == [] and desk.contents() == before and agent.client.asked == 1


# -- workflows


@dataclass
class Order:
    """A class of the caller's own in a message."""

    path: str
    done: tuple[str, ...] = ()


class Write(Executor):
    """Writes a file, remembers it, and passes the order on."""

    def __init__(self, desk: Any, id: str, text: str) -> None:
        super().__init__(id=id)
        self.desk, self.text, self.count = desk, text, 0

    @handler
    async def work(self, order: Order, ctx: WorkflowContext[Order, Order]) -> None:
        self.desk.write(order.path, self.text)
        self.count += 1
        made = Order(order.path, (*order.done, self.id))
        await (ctx.yield_output(made) if self.id == "last" else ctx.send_message(made))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Ask(Executor):
    """Asks a person about an order."""

    @handler
    async def work(self, order: Order, ctx: WorkflowContext[Order, str]) -> None:
        await ctx.request_info(order, str)

    @response_handler
    async def answered(self, order: Order, answer: str, ctx: WorkflowContext[Order, str]) -> None:
        await ctx.yield_output(f"{order.path}: {answer}")


def workflow(desk: Any, storage: Any) -> Any:
    steps = [Write(desk, id, f"{id}\n") for id in ("first", "second", "last")]
    builder = WorkflowBuilder(start_executor=steps[0], name="orders", checkpoint_storage=storage)
    return builder.add_chain(steps).build()


def test_a_workflow_goes_on_from_a_checkpoint_with_the_files_of_that_moment(desk: Any) -> None:
    async def story() -> None:
        storage = ReprieveCheckpoints(desk.ws, allow=[Order])
        first = await workflow(desk, storage).run(Order("notes.txt"))
        assert first.get_outputs() == [Order("notes.txt", ("first", "second", "last"))]
        kept = await storage.list_checkpoints(workflow_name="orders")
        assert [one.checkpoint_id for one in kept] == await storage.list_checkpoint_ids(workflow_name="orders")
        assert [one.previous_checkpoint_id for one in kept[1:]] == [one.checkpoint_id for one in kept[:-1]]
        at = next(
            one for one in kept if any(message.data.done == ("first",) for m in one.messages.values() for message in m)
        )
        new = storage.rollback_to(at.checkpoint_id, files=True)
        assert (desk.root / "notes.txt").read_text() == "first\n"
        latest = await storage.get_latest(workflow_name="orders")
        assert latest.checkpoint_id == new and latest.messages == at.messages and latest.state == at.state
        desk.ran.clear()
        again = await workflow(desk, storage).run(checkpoint_id=new)
        assert again.get_outputs() == first.get_outputs() and desk.ran == ["write notes.txt"] * 2
        storage.close()
        reopened = ReprieveCheckpoints(desk.ws, allow=[Order])
        assert (await reopened.load(at.checkpoint_id)).to_dict() == at.to_dict()
        reopened.close()

    asyncio.run(story())


def test_what_an_agent_said_in_a_workflow_is_kept(desk: Any) -> None:
    async def story() -> None:
        storage = ReprieveCheckpoints(desk.ws)
        agent = worker(desk, [call("write", path="notes.txt", text="two\n")], [say("done")])
        flow = WorkflowBuilder(
            start_executor=AgentExecutor(agent, id="a"), name="talk", checkpoint_storage=storage
        ).build()
        await flow.run("go")
        latest = await storage.get_latest(workflow_name="talk")
        said = latest.state["_executor_state"]["a"]["full_conversation"]
        assert [message.role for message in said] == ["user", "assistant", "tool", "assistant"]
        assert all(isinstance(message, Message) for message in said) and said[-1].text == "done"
        storage.close()

    asyncio.run(story())


def test_a_question_that_waits_is_kept(desk: Any) -> None:
    async def story() -> None:
        def made(storage: Any) -> Any:
            return WorkflowBuilder(start_executor=Ask(id="ask"), name="ask", checkpoint_storage=storage).build()

        storage = ReprieveCheckpoints(desk.ws, allow=[Order])
        asked = (await made(storage).run(Order("notes.txt"))).get_request_info_events()
        storage.close()
        storage = ReprieveCheckpoints(desk.ws, allow=[Order])
        latest = await storage.get_latest(workflow_name="ask")
        assert list(latest.pending_request_info_events) == [asked[0].request_id]
        answer = {asked[0].request_id: "yes"}
        done = await made(storage).run(checkpoint_id=latest.checkpoint_id, responses=answer)
        assert done.get_outputs() == ["notes.txt: yes"]
        storage.close()

    asyncio.run(story())


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_a_checkpoint_that_is_deleted_or_never_was_is_not_found(desk: Any, tmp_path: Any, where: str) -> None:
    async def story() -> None:
        storage = ReprieveCheckpoints(tmp_path / "state" if where == "folder" else None, allow=[Order])
        await workflow(desk, storage).run(Order("notes.txt"))
        *older, newest = await storage.list_checkpoint_ids(workflow_name="orders")
        assert await storage.delete(newest) and not await storage.delete(newest)
        assert await storage.list_checkpoint_ids(workflow_name="orders") == older
        assert (await storage.get_latest(workflow_name="orders")).checkpoint_id == older[-1]
        for id in (newest, "another"):
            with pytest.raises(WorkflowCheckpointException, match=id):
                await storage.load(id)
        assert await storage.get_latest(workflow_name="another") is None
        with pytest.raises(Usage, match="no file checkpoint"):
            storage.rollback_to(older[0], files=True)
        storage.close()

    asyncio.run(story())


def test_without_its_checkpoint_a_workflow_goes_no_further(desk: Any) -> None:
    async def story() -> None:
        storage = ReprieveCheckpoints(desk.ws, allow=[Order])
        flow = workflow(desk, storage)
        desk.spoil()
        with pytest.raises(NotKept, match="store"):
            await flow.run(Order("notes.txt"))
        assert desk.ran == []
        storage.close()

    asyncio.run(story())


def test_a_class_that_is_not_allowed_stops_the_workflow_and_says_how(desk: Any) -> None:
    storage = ReprieveCheckpoints(desk.ws)
    with pytest.raises(NotKept, match="Order"):
        asyncio.run(workflow(desk, storage).run(Order("notes.txt")))
    assert desk.ran == []
    storage.close()
