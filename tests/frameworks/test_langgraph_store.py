"""The long-term store goes back with its thread: what the thread's steps did there, and nothing of anybody else's."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from reprieve.errors import Conflict, Partial, Refused
from reprieve.frameworks.langgraph import ReprieveSaver
from reprieve.frameworks.langgraph_store import ReprieveStore

ADA = ("users", "ada")


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def graph_on(saver: ReprieveSaver, store: BaseStore, *, asks: bool = False, is_async: bool = False) -> Any:
    """Remembers what was said last, and a note for each thing said."""

    def words(state: State) -> tuple[str, int]:
        return state["said"][-1], len(state["said"])

    def remember(state: State, *, store: BaseStore) -> Any:
        last, count = words(state)
        store.put(ADA, "last", {"said": last})
        store.put((*ADA, "notes"), f"n{count}", {"said": last, "count": count})
        if asks:
            last += interrupt("sure?")
        if last == "forget":
            store.delete(ADA, "first")
        return {"said": [f"noted {last}"]}

    async def aremember(state: State, *, store: BaseStore) -> Any:
        last, count = words(state)
        await store.aput(ADA, "last", {"said": last})
        await store.aput((*ADA, "notes"), f"n{count}", {"said": last, "count": count})
        if last == "forget":
            await store.adelete(ADA, "first")
        return {"said": [f"noted {last}"]}

    builder = StateGraph(State)
    builder.add_node("remember", aremember if is_async else remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    return builder.compile(checkpointer=saver, store=store)


def items(store: BaseStore) -> dict[str, Any]:
    return {"/".join((*item.namespace, item.key)): item.value for item in store.search((), limit=100)}


def say(graph: Any, text: str, *, is_async: bool, durability: str, thread: str = "t") -> str:
    """A turn; the id of the state behind it."""
    if is_async:
        asyncio.run(graph.ainvoke({"said": [text]}, config(thread), durability=durability))
    else:
        graph.invoke({"said": [text]}, config(thread), durability=durability)
    return str(graph.get_state(config(thread)).config["configurable"]["checkpoint_id"])


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("is_async", [False, True])
def test_items_go_back_with_the_thread_and_forward_again(saver: ReprieveSaver, is_async: bool, durability: str) -> None:
    inner = InMemoryStore()
    inner.put(ADA, "first", {"said": "from before"})
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store, is_async=is_async)
    how = {"is_async": is_async, "durability": durability}
    first = say(graph, "one", **how)
    after_one = items(inner)
    say(graph, "two", **how)
    last = say(graph, "forget", **how)
    after_all = items(inner)
    assert "users/ada/first" not in after_all and len(after_all) == 4

    report = saver.rollback_to("t", first, store=store)
    assert items(inner) == after_one
    assert {one["key"] for one in report["store_report"]["restored"]} == {"last", "first"}
    assert {one["key"] for one in report["store_report"]["deleted"]} == {"n3", "n5"}
    assert graph.get_state(config()).values["said"] == ["one", "noted one"]

    asyncio.run(saver.arollback_to("t", last, store=store))
    assert items(inner) == after_all and len(graph.get_state(config()).values["said"]) == 6
    saver.rollback_to("t", first, store=store)
    say(graph, "other", **how)
    assert items(inner)["users/ada/last"] == {"said": "other"}
    saver.rollback_to("t", last, store=store)
    assert items(inner) == after_all
    assert saver.verify_trail("t")["ok"]


def test_without_the_store_going_back_leaves_it_and_names_what_it_left(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    first = say(graph, "one", is_async=False, durability="sync")
    say(graph, "two", is_async=False, durability="sync")
    before = items(inner)
    report = saver.rollback_to("t", first)
    assert items(inner) == before and report["store_report"] is None
    assert {one["key"] for one in report["store_items"]} == {"last", "n3"}
    assert store.plan("t", first)["restored"] == [{"namespace": ["users", "ada"], "key": "last"}]
    store.rollback("t", first)  # later, alone
    assert items(inner)["users/ada/last"] == {"said": "one"}
    assert store.rollback("t", first) == {"restored": [], "deleted": [], "conflicts": []}


def test_what_others_put_there_stays_and_is_a_conflict_where_it_is_in_the_way(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    first = say(graph, "one", is_async=False, durability="sync")
    say(graph, "two", is_async=False, durability="sync")
    store.put(("users", "bob"), "x", {"by": "a person"})
    store.put(ADA, "last", {"said": "by a person"})
    before = items(inner)
    with pytest.raises(Conflict) as caught:
        saver.rollback_to("t", first, store=store)
    assert list(caught.value.details) == ["users/ada/last"] and items(inner) == before
    assert len(graph.get_state(config()).values["said"]) == 4, "the thread was left alone, too"
    report = saver.rollback_to("t", first, store=store, on_conflict="keep")
    assert report["store_report"]["conflicts"] == [{"namespace": ["users", "ada"], "key": "last"}]
    assert items(inner) == {k: v for k, v in before.items() if k != "users/ada/notes/n3"}


def test_another_threads_items_stay(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    how: Any = {"is_async": False, "durability": "sync"}
    first = say(graph, "one", **how)
    say(graph, "two", **how)
    theirs = say(graph, "theirs", thread="other", **how)
    with pytest.raises(Conflict):
        saver.rollback_to("t", first, store=store)  # the other thread wrote the same item last
    saver.rollback_to("t", first, store=store, on_conflict="keep")
    assert items(inner)["users/ada/last"] == {"said": "theirs"}
    assert store.plan("other", theirs) == {"restored": [], "deleted": [], "conflicts": []}


def test_a_fork_and_a_copy_do_not_own_what_the_thread_did_to_the_store(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    how: Any = {"is_async": False, "durability": "sync"}
    first = say(graph, "one", **how)
    say(graph, "two", **how)
    saver.copy_thread("t", "copy")
    before = items(inner)
    saver.rollback_to("copy", first, store=store)
    assert items(inner) == before


def test_a_target_that_waits_keeps_what_its_step_did_before_it_asked(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store, asks=True)
    graph.invoke({"said": ["one"]}, config())
    waiting = graph.get_state(config())
    asked = items(inner)
    graph.invoke(Command(resume="!"), config())
    graph.invoke({"said": ["two"]}, config())
    graph.invoke(Command(resume="!"), config())
    saver.rollback_to("t", waiting.config["configurable"]["checkpoint_id"], store=store)
    assert items(inner) == asked
    assert graph.invoke(Command(resume="?"), config())["said"] == ["one", "noted one?"]


def test_a_process_that_ends_between_note_and_change_leaves_nothing_in_the_way(saver: ReprieveSaver) -> None:
    class Ends(InMemoryStore):
        ends = False

        def batch(self, ops: Any) -> Any:
            ops = list(ops)
            if self.ends and any(isinstance(op, PutOp) for op in ops):
                raise KeyboardInterrupt
            return super().batch(ops)

    inner = Ends()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    first = say(graph, "one", is_async=False, durability="sync")
    before = items(inner)
    inner.ends = True
    with pytest.raises(KeyboardInterrupt):
        say(graph, "two", is_async=False, durability="sync")
    with pytest.raises(KeyboardInterrupt):
        store.batch([PutOp(ADA, "last", {"said": "outside"})])
    inner.ends = False
    assert saver.rollback_to("t", first, store=store)["store_report"]["conflicts"] == []
    assert items(inner) == before


class Away(InMemoryStore):
    """A store whose server can be away: reading comes from a cache, changing fails, after `left` changes."""

    left = -1

    def batch(self, ops: Any) -> Any:
        found = []
        for op in ops:
            if isinstance(op, PutOp) and self.left == 0:
                raise ConnectionError("the server is away")
            self.left -= isinstance(op, PutOp) and self.left > 0
            found += super().batch([op])
        return found


@pytest.mark.parametrize("how", ["the same call", "the store alone"])
@pytest.mark.parametrize("done", [0, 1])
def test_a_store_that_fails_is_told_and_what_is_left_is_taken_back_later(
    saver: ReprieveSaver, how: str, done: int
) -> None:
    """The thread has moved by then: that is said, and a noted change that never happened is not taken for done."""
    inner = Away()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    first = say(graph, "one", is_async=False, durability="sync")
    before = items(inner)
    last = say(graph, "two", is_async=False, durability="sync")
    for _ in range(2):  # away for longer
        inner.left = done
        with pytest.raises(Partial, match=r"is at .* but the long-term store failed: the server is away") as caught:
            saver.rollback_to("t", first, store=store)
        assert isinstance(caught.value.__cause__, ConnectionError) and items(inner) != before
        assert graph.get_state(config()).values["said"] == ["one", "noted one"]
        done = 0
    assert caught.value.data["rolled_back_from"] != last
    inner.left = -1
    if how == "the store alone":
        store.rollback("t", first)
    else:
        saver.rollback_to("t", first, store=store)
    assert items(inner) == before and store.plan("t", first)["restored"] == []
    saver.rollback_to("t", last, store=store)
    assert items(inner)["users/ada/last"] == {"said": "two"} and saver.verify_trail("t")["ok"]


def test_a_store_that_fails_at_a_target_that_waits_is_taken_back_later(saver: ReprieveSaver) -> None:
    inner = Away()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store, asks=True)
    graph.invoke({"said": ["one"]}, config())
    waiting = graph.get_state(config()).config["configurable"]["checkpoint_id"]
    asked = items(inner)
    graph.invoke(Command(resume="!"), config())
    graph.invoke({"said": ["two"]}, config())
    inner.left = 0
    with pytest.raises(Partial):
        saver.rollback_to("t", waiting, store=store)
    inner.left = -1
    store.rollback("t", waiting)
    assert items(inner) == asked


def test_what_a_person_puts_back_after_a_rollback_is_theirs(saver: ReprieveSaver) -> None:
    """Also if it is the very value that was taken back: going back to the same state again leaves it."""
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    first = say(graph, "one", is_async=False, durability="sync")
    say(graph, "two", is_async=False, durability="sync")
    saver.rollback_to("t", first, store=store)
    for text in ("two", "something else"):
        inner.put(ADA, "last", {"said": text})
        assert saver.rollback_to("t", first, store=store)["store_report"]["restored"] == []
        assert items(inner)["users/ada/last"] == {"said": text}


def test_pruned_threads_still_take_back_what_the_states_that_are_left_did(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)
    graph = graph_on(saver, store)
    how: Any = {"is_async": False, "durability": "sync"}
    for text in ("one", "two"):
        say(graph, text, **how)
    saver.prune(["t"])
    kept = str(graph.get_state(config()).config["configurable"]["checkpoint_id"])
    before = items(inner)
    say(graph, "three", **how)
    saver.rollback_to("t", kept, store=store)
    assert items(inner) == before and saver.verify_trail("t")["ok"]


def test_a_late_step_of_a_deleted_thread_changes_nothing(saver: ReprieveSaver) -> None:
    inner = InMemoryStore()
    store = ReprieveStore(inner, saver)

    def late(state: State, *, store: BaseStore) -> Any:
        saver.delete_thread("t")
        store.put(ADA, "late", {"said": "late"})
        return {"said": ["late"]}

    builder = StateGraph(State)
    builder.add_node("late", late)
    builder.add_edge(START, "late")
    with pytest.raises(Refused):
        builder.compile(checkpointer=saver, store=store).invoke({"said": ["x"]}, config(), durability="sync")
    assert items(inner) == {}


def test_everything_else_is_the_wrapped_stores(saver: ReprieveSaver) -> None:
    store = ReprieveStore(InMemoryStore(), saver)
    assert store.supports_ttl is False and store.ttl_config is None
    store.put(("a", "b"), "k", {"n": 1, "kind": "x"})
    store.put(("a", "c"), "k", {"n": 2, "kind": "y"})
    assert [item.value["n"] for item in store.search(("a",), filter={"kind": "y"})] == [2]
    assert [item.value["n"] for item in store.search(("a",), filter={"n": {"$gt": 0}})] == [1, 2]
    assert store.list_namespaces(prefix=("a",), max_depth=2) == [("a", "b"), ("a", "c")]
    store.delete(("a", "b"), "k")
    assert store.get(("a", "b"), "k") is None and asyncio.run(store.aget(("a", "c"), "k")) is not None
    with pytest.raises(NotImplementedError):
        store.put(("a",), "k", {}, ttl=5)


def test_the_command_line_names_the_items_that_it_cannot_move(cli: Any, tmp_path: Path) -> None:
    with ReprieveSaver(tmp_path / "state") as saver:
        graph = graph_on(saver, ReprieveStore(InMemoryStore(), saver))
        first = say(graph, "one", is_async=False, durability="sync")
        say(graph, "two", is_async=False, durability="sync")
    where = ("--state", str(tmp_path / "state"))
    told = cli("thread", "rollback", "t", first, *where)
    assert "2 items of the long-term store stay" in told.out
    assert cli("thread", "rollback", "t", "~1", *where, "--json").json["store_items"] == []
