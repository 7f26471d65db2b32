"""The files that belong to a state go with it: also with one that waits while a part of its step is done."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import reprieve
from reprieve.frameworks.langgraph import ReprieveSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    said: Annotated[list[str], operator.add]


@pytest.fixture
def ws(project: Path) -> Iterator[reprieve.Workspace]:
    with reprieve.open(project) as opened:
        yield opened


class Two:
    """Two nodes at once: one writes a file, the other asks (or fails), before or after that."""

    def __init__(
        self,
        project: Path,
        saver: ReprieveSaver,
        *,
        first: str = "write",
        inside: bool = False,
        guard: Callable[[Any], Any] = lambda node: node,
    ) -> None:
        self.project, self.first, self.ran = project, first, 0
        self.fails = False
        self.write_ended, self.is_asking = threading.Event(), threading.Event()
        node: Any = guard(self.ask)
        if inside:
            inner = StateGraph(State)
            inner.add_node("ask", self.ask)
            inner.add_edge(START, "ask")
            node = inner.compile()
        builder = StateGraph(State)
        builder.add_node("write", guard(self.write))
        builder.add_node("ask", node)
        builder.add_edge(START, "write")
        builder.add_edge(START, "ask")
        self.graph: Any = builder.compile(checkpointer=saver)

    def write(self, state: State) -> State:
        if self.first == "ask":
            assert self.is_asking.wait(30)
            threading.Event().wait(0.3)  # until the question is stored
        self.ran += 1
        (self.project / "written.txt").write_text("by a node that is done")
        self.write_ended.set()
        return {"said": ["written"]}

    def ask(self, state: State) -> State:
        if self.first == "write":
            assert self.write_ended.wait(30)
            threading.Event().wait(0.3)
        self.is_asking.set()
        if self.fails:
            raise RuntimeError("not today")
        answer = interrupt("go on?")
        (self.project / "answered.txt").write_text(answer)
        return {"said": [answer]}

    def head(self) -> str:
        return str(self.graph.get_state(CONFIG).config["configurable"]["checkpoint_id"])

    def files(self) -> set[str]:
        return {name for name in ("written.txt", "answered.txt") if (self.project / name).exists()}


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "subgraph"])
@pytest.mark.parametrize("first", ["write", "ask"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_state_that_waits_takes_the_files_of_finished_work_along(
    ws: reprieve.Workspace, project: Path, first: str, inside: bool, durability: str
) -> None:
    """The node that is done is not run again: without its file the state would speak of something that is gone."""
    with ReprieveSaver(ws) as saver:
        two = Two(project, saver, first=first, inside=inside)
        two.graph.invoke({"said": ["u"]}, CONFIG, durability=durability)
        waiting = two.head()
        assert two.files() == {"written.txt"}
        two.graph.invoke(Command(resume="bad"), CONFIG, durability=durability)
        assert two.files() == {"written.txt", "answered.txt"}
        for answer in ("worse", "good"):  # also the second time
            report = saver.rollback_to("t", waiting, files=True)
            assert two.files() == {"written.txt"} and report["pending_writes"] >= 2
            two.graph.invoke(Command(resume=answer), CONFIG, durability=durability)
        assert (project / "answered.txt").read_text() == "good" and two.ran == 1
        assert {*two.graph.get_state(CONFIG).values["said"]} == {"good", "u", "written"}


def test_a_fork_of_a_state_that_waits_knows_the_same_files(ws: reprieve.Workspace, project: Path) -> None:
    with ReprieveSaver(ws) as saver:
        two = Two(project, saver)
        two.graph.invoke({"said": ["u"]}, CONFIG, durability="sync")
        waiting = two.head()
        two.graph.invoke(Command(resume="bad"), CONFIG, durability="sync")
        saver.fork("t", waiting, "other")
        other: Any = {"configurable": {"thread_id": "other"}}
        two.graph.invoke(Command(resume="worse"), other, durability="sync")
        saver.rollback_to("other", waiting, files=True)
        assert two.files() == {"written.txt"}


def test_a_step_that_failed_in_part_takes_the_files_of_the_rest_along(ws: reprieve.Workspace, project: Path) -> None:
    with ReprieveSaver(ws) as saver:
        two = Two(project, saver)
        two.fails = True
        with pytest.raises(RuntimeError, match="not today"):
            two.graph.invoke({"said": ["u"]}, CONFIG, durability="sync")
        failed = two.head()
        before = [state.config["configurable"]["checkpoint_id"] for state in two.graph.get_state_history(CONFIG)][-1]
        saver.rollback_to("t", before, files=True)
        assert two.files() == set()
        saver.rollback_to("t", failed, files=True)
        assert two.files() == {"written.txt"}
        two.fails = False
        two.graph.invoke(None, CONFIG, durability="sync")
        two.graph.invoke(Command(resume="good"), CONFIG, durability="sync")
        assert two.ran == 1 and two.files() == {"written.txt", "answered.txt"}


def test_it_is_the_same_where_tools_take_the_checkpoints(ws: reprieve.Workspace, project: Path) -> None:
    with ReprieveSaver(ws, checkpoints=False) as saver:
        two = Two(project, saver, guard=ws.guard)
        two.graph.invoke({"said": ["u"]}, CONFIG, durability="sync")
        waiting = two.head()
        two.graph.invoke(Command(resume="bad"), CONFIG, durability="sync")
        saver.rollback_to("t", waiting, files=True)
        assert two.files() == {"written.txt"}


def test_it_is_the_same_for_an_asynchronous_graph(ws: reprieve.Workspace, project: Path) -> None:
    async def main() -> None:
        async with ReprieveSaver(ws) as saver:
            two = Two(project, saver)
            await two.graph.ainvoke({"said": ["u"]}, CONFIG, durability="sync")
            waiting = two.head()
            await two.graph.ainvoke(Command(resume="bad"), CONFIG, durability="sync")
            await saver.arollback_to("t", waiting, files=True)
            assert two.files() == {"written.txt"}

    asyncio.run(main())
