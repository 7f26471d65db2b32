"""Going back on a thread: the restored state is the head, nothing is erased, and what comes next is right."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint, uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from frameworks.graphs import CONFIG, joined
from reprieve.errors import BadRef, Conflict, Usage
from reprieve.frameworks.langgraph import ReprieveSaver


class State(TypedDict):
    p: Annotated[list[str], operator.add]
    d: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=1000)]


class Snapped(TypedDict):
    p: Annotated[list[str], operator.add]
    d: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=2)]


def said(word: str) -> dict[str, list[str]]:
    return {"p": [word], "d": [word]}


def chain(saver: ReprieveSaver, state: type = State) -> Any:
    builder = StateGraph(state)
    builder.add_node("a", lambda state: said("a"))
    builder.add_node("b", lambda state: said("b"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", END)
    return builder.compile(checkpointer=saver)


def now(graph: Any) -> Any:
    return graph.get_state(CONFIG).values


def id_of(state: Any) -> str:
    found: str = state.config["configurable"]["checkpoint_id"]
    return found


@pytest.mark.parametrize("state", [State, Snapped], ids=["no snapshot", "snapshots"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_bad_turn_is_gone_from_plain_and_delta_channels(saver: ReprieveSaver, state: type, durability: Any) -> None:
    graph = chain(saver, state)
    graph.invoke(said("u1"), CONFIG, durability=durability)
    good = graph.get_state(CONFIG)
    graph.invoke(said("BAD"), CONFIG, durability=durability)
    bad = graph.get_state(CONFIG)
    report = saver.rollback_to("t", id_of(good))
    assert report["restored_from"] == id_of(good) and report["rolled_back_from"] == id_of(bad)
    assert now(graph) == {"p": ["u1", "a", "b"], "d": ["u1", "a", "b"]}
    graph.invoke(said("u2"), CONFIG, durability=durability)
    assert now(graph) == {"p": ["u1", "a", "b", "u2", "a", "b"], "d": ["u1", "a", "b", "u2", "a", "b"]}
    assert graph.get_state(bad.config).values["d"] == ["u1", "a", "b", "BAD", "a", "b"], "nothing is erased"
    assert saver.verify_trail("t")["ok"]


@pytest.mark.parametrize("state", [State, Snapped], ids=["no snapshot", "snapshots"])
def test_a_state_in_the_middle_of_a_run_goes_on_from_there_once(saver: ReprieveSaver, state: type) -> None:
    graph = chain(saver, state)
    graph.invoke(said("u1"), CONFIG)
    graph.invoke(said("BAD"), CONFIG)
    middle = next(s for s in graph.get_state_history(CONFIG) if s.next == ("b",) and "BAD" not in s.values["p"])
    saver.rollback_to("t", id_of(middle))
    assert now(graph) == {"p": ["u1", "a"], "d": ["u1", "a"]} and graph.get_state(CONFIG).next == ("b",)
    graph.invoke(None, CONFIG)
    assert now(graph) == {"p": ["u1", "a", "b"], "d": ["u1", "a", "b"]}


def test_a_rollback_of_a_rollback_brings_back_what_was_given_up(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    for word in ("u1", "u2", "u3"):
        graph.invoke(said(word), CONFIG)
    expected, newest = now(graph), id_of(graph.get_state(CONFIG))
    ends = [s for s in graph.get_state_history(CONFIG) if not s.next]
    saver.rollback_to("t", id_of(ends[2]))
    saver.rollback_to("t", id_of(ends[1]))
    saver.rollback_to("t", newest)
    assert now(graph) == expected
    graph.invoke(said("u4"), CONFIG)
    assert now(graph)["d"] == [*expected["d"], "u4", "a", "b"]


def asking(saver: ReprieveSaver, calls: list[str], *, inside: bool = False) -> Any:
    """Two nodes at once: one charges a card, the other asks a person; perhaps in a subgraph."""

    def charge(state: State) -> Any:
        calls.append("charge")
        return said("charged")

    def ask(state: State) -> Any:
        return said(f"answer={interrupt('ship it?')}")

    node: Any = ask
    if inside:
        inner = StateGraph(State)
        inner.add_node("first", lambda state: said("in"))
        inner.add_node("ask", ask)
        inner.add_edge(START, "first")
        inner.add_edge("first", "ask")
        node = inner.compile()
    builder = StateGraph(State)
    builder.add_node("charge", charge)
    builder.add_node("ask", node)
    builder.add_edge(START, "charge")
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "subgraph"])
def test_TP07_a_question_and_finished_parallel_work_come_back(saver: ReprieveSaver, inside: bool) -> None:
    calls: list[str] = []
    graph = asking(saver, calls, inside=inside)
    graph.invoke(said("u"), CONFIG)
    waiting = graph.get_state(CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)
    assert "answer=yes" in now(graph)["p"]
    report = saver.rollback_to("t", id_of(waiting))
    again = graph.get_state(CONFIG)
    assert [i.value for i in again.interrupts] == ["ship it?"] and report["pending_writes"] >= 2
    graph.invoke(Command(resume="no"), CONFIG)
    assert now(graph)["p"].count("charged") == 1 and "answer=no" in now(graph)["p"]
    assert sorted(now(graph)["d"]) == sorted(now(graph)["p"])
    assert calls == ["charge"], "the card was charged once"
    assert saver.verify_trail("t")["ok"]


def test_TP07_a_fork_and_an_adopted_state_keep_the_question_too(saver: ReprieveSaver) -> None:
    calls: list[str] = []
    graph = asking(saver, calls)
    graph.invoke(said("u"), CONFIG)
    waiting = id_of(graph.get_state(CONFIG))
    described = saver.handoff_checkpoint("t", waiting, to_agent="other")
    graph.invoke(Command(resume="yes"), CONFIG)
    saver.fork("t", waiting, "forked")
    saver.adopt_checkpoint(described, "adopted")
    for thread in ("forked", "adopted"):
        config: Any = {"configurable": {"thread_id": thread}}
        assert [i.value for i in graph.get_state(config).interrupts] == ["ship it?"]
        graph.invoke(Command(resume=thread), config)
        assert graph.get_state(config).values["d"] == ["u", f"answer={thread}", "charged"]
        assert saver.verify_trail(thread)["ok"]
    assert calls == ["charge"]
    assert "answer=yes" in now(graph)["p"]


def remembering(saver: ReprieveSaver) -> Any:
    """A subgraph with a memory of its own, which counts its calls."""

    def count(state: State) -> Any:
        return said(f"call{sum(w.startswith('call') for w in state['p']) + 1}")

    inner = StateGraph(State)
    inner.add_node("count", count)
    inner.add_edge(START, "count")
    builder = StateGraph(State)
    memory = inner.compile(checkpointer=True)
    builder.add_node("memory", lambda state: {"p": [memory.invoke({"p": [], "d": []})["p"][-1]], "d": []})
    builder.add_edge(START, "memory")
    return builder.compile(checkpointer=saver)


def test_all_namespaces_go_back(saver: ReprieveSaver) -> None:
    graph = remembering(saver)
    for word in ("u1", "u2", "u3"):
        graph.invoke(said(word), CONFIG)
    assert [w for w in now(graph)["p"] if w.startswith("call")] == ["call1", "call2", "call3"]
    first = [s for s in graph.get_state_history(CONFIG) if not s.next][-1]
    saver.rollback_to("t", id_of(first))
    graph.invoke(said("u4"), CONFIG)
    assert [w for w in now(graph)["p"] if w.startswith("call")] == ["call1", "call2"]
    assert saver.verify_trail("t")["ok"]


def test_TP09_a_clock_that_is_behind_cannot_keep_the_bad_state_alive(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    graph.invoke(said("u1"), CONFIG)
    good = graph.get_state(CONFIG)
    graph.invoke(said("BAD"), CONFIG)
    bad = id_of(graph.get_state(CONFIG))
    saver._threads.clock = lambda: 1_000_000_000_000_000_000  # 2001
    report = saver.rollback_to("t", id_of(good))
    assert now(graph)["p"] == ["u1", "a", "b"]
    assert report["checkpoint_id"] > bad, "also for whoever goes by the largest id"
    old = str(uuid6(clock_seq=3)).replace("1f", "1e", 1)  # a writer whose clock is behind
    checkpoint = {**saver.get_tuple(CONFIG).checkpoint, "id": old}  # type: ignore[union-attr]
    head = saver.get_tuple(CONFIG)
    assert head is not None
    saver.put(head.config, checkpoint, {"source": "loop", "step": 9, "parents": {}}, {})  # type: ignore[arg-type]
    found = saver.get_tuple(CONFIG)
    assert found is not None and found.checkpoint["id"] == old


def test_TP13_TP14_the_abandoned_head_is_named_and_the_present_state_is_no_target(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    graph.invoke(said("u1"), CONFIG)
    first = id_of(graph.get_state(CONFIG))
    with pytest.raises(Usage, match="nothing to take back"):
        saver.rollback_to("t", first)
    graph.invoke(said("u2"), CONFIG)
    second = id_of(graph.get_state(CONFIG))
    report = saver.rollback_to("t", first)
    assert (report["restored_from"], report["rolled_back_from"]) == (first, second)
    head = saver.get_tuple(CONFIG)
    assert head is not None
    meta: dict[str, Any] = dict(head.metadata)
    assert (meta["source"], meta["rolled_back_from"], meta["restored_from"]) == ("fork", second, first), "TP-13"


def test_a_rollback_can_depend_on_the_head(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    graph.invoke(said("u1"), CONFIG)
    first = id_of(graph.get_state(CONFIG))
    graph.invoke(said("u2"), CONFIG)
    second = id_of(graph.get_state(CONFIG))
    graph.invoke(said("u3"), CONFIG)
    with pytest.raises(Conflict):
        saver.rollback_to("t", first, expect=second)
    assert now(graph)["p"][-3] == "u3"
    with pytest.raises(BadRef):
        saver.rollback_to("t", "nothing")
    with pytest.raises(BadRef):
        saver.rollback_to("none", first)


def test_a_fork_has_the_whole_history_and_lives_apart(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    graph.invoke(said("u1"), CONFIG)
    first = id_of(graph.get_state(CONFIG))
    graph.invoke(said("u2"), CONFIG)
    report = saver.fork("t", first, "new")
    config: Any = {"configurable": {"thread_id": "new"}}
    graph.invoke(said("other"), config)
    assert graph.get_state(config).values["d"] == ["u1", "a", "b", "other", "a", "b"]
    assert len(list(graph.get_state_history(config))) > 4
    assert now(graph)["d"] == ["u1", "a", "b", "u2", "a", "b"]
    assert report["forked_from"] == f"t:{first}"
    saver.delete_thread("t")
    assert graph.get_state(config).values["d"] == ["u1", "a", "b", "other", "a", "b"], "needs nothing of the source"
    assert saver.verify_trail("new")["ok"]
    with pytest.raises(Conflict):
        saver.fork("new", report["checkpoint_id"], "new")


@pytest.mark.parametrize(
    "prepare", [lambda s, g: None, lambda s, g: s.rollback_to("t", id_of([*g.get_state_history(CONFIG)][4]))]
)
@pytest.mark.parametrize("state", [State, Snapped], ids=["no snapshot", "snapshots"])
def test_prune_and_copy_keep_delta_channels(
    saver: ReprieveSaver, state: type, prepare: Callable[[Any, Any], Any]
) -> None:
    """A naive prune passes the conformance suite and empties them."""
    graph = chain(saver, state)
    for word in ("u1", "u2", "u3"):
        graph.invoke(said(word), CONFIG)
    prepare(saver, graph)
    expected = now(graph)
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    for thread in ("t", "copy"):
        config: Any = {"configurable": {"thread_id": thread}}
        assert graph.get_state(config).values == expected
        graph.invoke(None, config)
        expected_next = graph.get_state(config).values
        graph.invoke(said("more"), config)
        assert graph.get_state(config).values["d"] == [*expected_next["d"], "more", "a", "b"]
        assert graph.get_state(config).values["d"] == graph.get_state(config).values["p"]
        assert saver.verify_trail(thread)["ok"]
    saver.prune(["t"])
    assert graph.get_state(CONFIG).values["d"] == graph.get_state(CONFIG).values["p"]
    assert saver.verify_trail("t")["ok"]


def test_deleting_a_run_keeps_what_later_states_are_made_of(saver: ReprieveSaver) -> None:
    graph = chain(saver)
    for word in ("u1", "u2", "u3"):
        graph.invoke(said(word), {**CONFIG, "metadata": {"run_id": f"run-{word}"}})
    expected = now(graph)
    saver.delete_for_runs(["run-u2"])
    assert now(graph) == expected
    assert {s.metadata.get("run_id") for s in graph.get_state_history(CONFIG)} == {"run-u1", "run-u3"}
    saver.delete_for_runs(["run-u3"])
    assert now(graph)["d"] == ["u1", "a", "b"]
    assert saver.verify_trail("t")["ok"]


def test_the_asynchronous_saver_goes_back_likewise(saver: ReprieveSaver) -> None:
    graph = chain(saver)

    async def play() -> None:
        await graph.ainvoke(said("u1"), CONFIG)
        first = id_of(await graph.aget_state(CONFIG))
        await graph.ainvoke(said("BAD"), CONFIG)
        await asyncio.to_thread(saver.rollback_to, "t", first)
        await graph.ainvoke(said("u2"), CONFIG)
        assert (await graph.aget_state(CONFIG)).values["d"] == ["u1", "a", "b", "u2", "a", "b"]

    asyncio.run(play())


@pytest.mark.parametrize("by_id", [False, True], ids=["plain answer", "answer by the question's id"])
@pytest.mark.parametrize("inside", [False, True], ids=["plain", "subgraph"])
def test_a_question_can_be_taken_back_and_answered_again_and_again(
    saver: ReprieveSaver, inside: bool, by_id: bool
) -> None:
    """Each answer counts, and none that was taken back comes again."""
    calls: list[str] = []
    graph = asking(saver, calls, inside=inside)
    graph.invoke(said("u"), CONFIG)
    waiting, ends = id_of(graph.get_state(CONFIG)), {}
    for answer in ("yes", "no", "perhaps"):
        (question,) = graph.get_state(CONFIG).interrupts
        graph.invoke(Command(resume={question.id: answer} if by_id else answer), CONFIG)
        assert [word for word in now(graph)["p"] if "=" in word] == [f"answer={answer}"]
        ends[answer] = id_of(graph.get_state(CONFIG)), now(graph)
        saver.rollback_to("t", waiting)
    for id, values in ends.values():
        saver.rollback_to("t", id)
        assert now(graph) == values
    assert calls == ["charge"] and saver.verify_trail("t")["ok"]


@pytest.mark.parametrize("inside", [False, True], ids=["plain", "subgraph"])
def test_a_question_that_came_back_and_was_left_again_still_waits(saver: ReprieveSaver, inside: bool) -> None:
    """Back to the question, elsewhere without an answer, and back to it again."""
    calls: list[str] = []
    graph = asking(saver, calls, inside=inside)
    graph.invoke(said("u"), CONFIG)
    waiting = id_of(graph.get_state(CONFIG))
    graph.invoke(Command(resume="yes"), CONFIG)
    answered = id_of(graph.get_state(CONFIG))
    for target in (waiting, answered, waiting):
        saver.rollback_to("t", target)
    assert [i.value for i in graph.get_state(CONFIG).interrupts] == ["ship it?"]
    graph.invoke(Command(resume="no"), CONFIG)
    assert sorted(now(graph)["d"]) == sorted(now(graph)["p"])
    assert {"answer=no", "charged", "u"} <= {*now(graph)["p"]} <= {"answer=no", "charged", "u", "in"}
    assert calls == ["charge"] and saver.verify_trail("t")["ok"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_states_of_a_history_hold_what_each_of_them_held_and_no_other_owner_shares_it(
    on_disk: ReprieveSaver, is_async: bool
) -> None:
    class Talk(TypedDict):
        d: Annotated[list[Any], DeltaChannel(joined, snapshot_frequency=1000)]

    builder = StateGraph(Talk)
    builder.add_node("answer", lambda state: {"d": [AIMessage(f"a{len(state['d'])}", id=f"a{len(state['d'])}")]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=on_disk)
    for turn in range(6):
        graph.invoke({"d": [HumanMessage(f"h{turn}", id=f"h{turn}")]}, CONFIG)

    async def ahistory() -> list[Any]:
        return [state async for state in graph.aget_state_history(CONFIG)]

    states = asyncio.run(ahistory()) if is_async else list(graph.get_state_history(CONFIG))
    whole = graph.get_state(CONFIG).values["d"]
    for state in states:
        held = state.values.get("d", [])
        assert held == whole[: len(held)]
    assert len(states[0].values["d"]) == 12 and states[0].values["d"][0] is states[1].values["d"][0]
    states[0].values["d"][0].content = "changed by the owner of the listing"
    assert graph.get_state(CONFIG).values["d"][0].content == "h0"
    assert next(graph.get_state_history(CONFIG)).values["d"][0].content == "h0"
    whole[1].content = "changed by the owner of a state"
    assert graph.get_state(CONFIG).values["d"][1].content == "a1"


def test_a_state_is_stored_as_it_was_though_the_graph_goes_on(saver: ReprieveSaver) -> None:
    """A join of branches is a set that LangGraph goes on to fill while a thread has not come to store it yet."""
    live, done = {"a"}, ({"a"}, False)
    first = empty_checkpoint() | {
        "channel_values": {"join": live, "after": done},
        "channel_versions": {"join": "1", "after": "1"},
    }

    async def store() -> None:
        gate = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, gate.wait)
        stored = asyncio.create_task(saver.aput(CONFIG | {}, first, {}, {"join": "1", "after": "1"}))  # type: ignore[arg-type]
        await asyncio.sleep(0)  # it is asked for now, and no thread is free
        live.add("b")
        done[0].add("b")
        gate.set()
        await asyncio.gather(busy, stored)

    asyncio.run(store())
    kept = saver.get_tuple(CONFIG)
    assert kept is not None and kept.checkpoint["channel_values"] == {"join": {"a"}, "after": ({"a"}, False)}
