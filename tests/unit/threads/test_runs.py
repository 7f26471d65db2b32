"""Messages are looked at and handed out in runs; nothing that one message alone would show may be overlooked."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from reprieve.frameworks.langgraph_types import langgraph_types
from reprieve.model.thread import ThreadRecord
from reprieve.store.thread_memory import MemoryThreads
from reprieve.threads import models, parts, runs
from reprieve.threads.parts import Parts
from reprieve.threads.runs import SIZE


class World:
    def __init__(self) -> None:
        self.store = MemoryThreads()
        self.store.save_thread(ThreadRecord("t", 0, bytes(32), 0))
        self.parts = Parts(self.store, langgraph_types())
        self.known: set[bytes] = set()

    def keep(self, value: Any) -> Any:
        out: dict[bytes, bytes] = {}
        reference = self.parts.encode(value, out, self.known)
        self.store.put_parts("t", out)
        self.known.update(out)
        return reference

    def get(self, reference: Any) -> list[Any]:
        """As a saver reads what the next turn will store again."""
        found: list[Any] = self.parts.decode(reference, self.known)
        return found

    def stored(self, reference: Any) -> list[Any]:
        """What is in the store, by somebody who remembers nothing."""
        found: list[Any] = Parts(self.store, langgraph_types()).decode(reference)
        return found


@pytest.fixture
def world() -> World:
    return World()


def message(n: int) -> Any:
    if n % 4 == 1:
        call = {"name": "f", "args": {"a": [1, n], "b": {"c": True}}, "id": f"c{n}"}
        return AIMessage(f"calling {n}", id=f"m{n}", tool_calls=[call], response_metadata={"model": "some", "n": n})
    if n % 4 == 2:
        return ToolMessage(f"result {n}", tool_call_id=f"c{n - 1}", artifact={"rows": [1, (2, [3])]}, id=f"m{n}")
    return (AIMessage if n % 4 == 3 else HumanMessage)(f"text {n}", id=f"m{n}")


def talk(count: int) -> list[Any]:
    return [message(n) for n in range(count)]


CHANGES: dict[str, Callable[[Any], object]] = {
    "a field": lambda m: setattr(m, "content", "other"),
    "to an equal field of another type": lambda m: m.__dict__.update(name=0),
    "a field's name": lambda m: m.__dict__.update(other=m.__dict__.pop([*m.__dict__][-1])),
    "a field more": lambda m: m.__dict__.update(other=None),
    "a field less": lambda m: m.__dict__.popitem(),
    "an empty container": lambda m: m.additional_kwargs.update(a=1),
    "a container for another": lambda m: setattr(m, "additional_kwargs", {"a": 1}),
    "an extra field": lambda m: setattr(m, "something", "more"),
    "all fields": lambda m: object.__setattr__(m, "__dict__", {**m.__dict__, "content": "other"}),
    "all extra fields": lambda m: object.__setattr__(m, "__pydantic_extra__", {"something": "more"}),
    "the class": lambda m: object.__setattr__(m, "__class__", type(message(0 if type(m) is AIMessage else 3))),
}
DEEP: dict[str, Callable[[Any], object]] = {
    "a list inside": lambda m: m.tool_calls[0]["args"]["a"].append(2),
    "True to 1": lambda m: m.tool_calls[0]["args"]["b"].update(c=1),
    "1 to 1.0": lambda m: m.tool_calls[0]["args"]["a"].__setitem__(0, 1.0),
    "an object of another kind": lambda m: m.response_metadata.update(model=frozenset("a")),
}


@pytest.mark.parametrize("is_read", [False, True], ids=["own", "read"])
@pytest.mark.parametrize("at", [0, 3, SIZE - 1, SIZE, 3 * SIZE - 1])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_in_place_is_seen(world: World, change: Callable[[Any], object], at: int, is_read: bool) -> None:
    messages = [(AIMessage if n % 2 else HumanMessage)(f"text {n}", id=f"m{n}") for n in range(3 * SIZE)]
    reference = world.keep(messages)
    if is_read:
        messages = world.get(reference)
    assert world.keep(messages) == reference
    assert world.parts._runs.same(messages, SIZE), "no run: this test would prove nothing"
    change(messages[at])
    later = world.keep(messages)
    assert later != reference
    assert later == World().keep(messages), "not as one stores it who has never seen the messages"


@pytest.mark.parametrize("is_read", [False, True], ids=["own", "read"])
@pytest.mark.parametrize("change", DEEP.values(), ids=list(DEEP))
def test_a_change_deep_inside_is_seen(world: World, change: Callable[[Any], object], is_read: bool) -> None:
    messages = talk(3 * SIZE)
    reference = world.keep(messages)
    if is_read:
        messages = world.get(reference)
    assert world.keep(messages) == reference
    assert world.parts._runs.same(messages, SIZE)
    change(messages[SIZE + 5])
    later = world.keep(messages)
    assert later != reference
    assert repr(world.stored(later)) == repr(messages)


def test_copies_are_handed_out_again_when_nobody_has_them(world: World) -> None:
    reference = world.keep(talk(3 * SIZE))
    before = {id(one) for one in world.get(reference)}
    again = world.get(reference)
    assert {id(one) for one in again} == before
    assert repr(again) == repr(talk(3 * SIZE))


def test_where_counts_of_references_say_nothing_copies_are_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_ALONE", ({-1},) * 4)
    reference = world.keep(talk(3 * SIZE))
    first = {id(one) for one in world.get(reference)[: 2 * SIZE]}  # the loans keep them, so no id is used again
    assert not first & {id(one) for one in world.get(reference)}


HELD: dict[str, Callable[[Any], object]] = {
    "the message": lambda m: m,
    "its fields": lambda m: m.__dict__,
    "an empty dict": lambda m: m.additional_kwargs,
    "an empty list": lambda m: m.invalid_tool_calls,
    "its extra fields": lambda m: m.__pydantic_extra__,
    "a list": lambda m: m.tool_calls,
    "something deep inside": lambda m: m.tool_calls[0]["args"]["a"],
    "a list in a tuple": lambda m: m.response_metadata["t"][1],
}
SPOILED: dict[str, Callable[[Any], object]] = {
    "the message": lambda m: setattr(m, "content", "mine"),
    "its fields": lambda f: f.update(content="mine"),
    "an empty dict": lambda d: d.update(mine=1),
    "an empty list": lambda d: d.append("mine"),
    "its extra fields": lambda d: d.update(mine=1),
    "a list": lambda d: d.append("mine"),
    "something deep inside": lambda d: d.append("mine"),
    "a list in a tuple": lambda d: d.append("mine"),
}


@pytest.mark.parametrize("what", HELD)
def test_what_somebody_still_has_is_in_no_message_of_another(world: World, what: str) -> None:
    messages = talk(3 * SIZE)
    messages[SIZE + 1].response_metadata["t"] = (1, [2])
    said = repr(messages)
    reference = world.keep(messages)
    held = HELD[what](world.get(reference)[SIZE + 1])
    second = world.get(reference)
    SPOILED[what](held)
    assert repr(second) == said
    assert world.keep(second) == reference
    del second
    assert repr(world.get(reference)) == said and repr(world.stored(reference)) == said


def test_a_container_that_was_exchanged_is_not_handed_out(world: World) -> None:
    """The messages' own dict is held as often as before, and the one in its place is as empty."""
    reference = world.keep(talk(3 * SIZE))
    mine: dict[str, Any] = {}

    def exchange() -> dict[str, Any]:
        one = world.get(reference)[SIZE]
        theirs: dict[str, Any] = one.additional_kwargs
        one.additional_kwargs = mine
        return theirs

    theirs = exchange()
    second = world.get(reference)
    mine["x"] = theirs["y"] = 1
    assert repr(second) == repr(talk(3 * SIZE))


def test_what_was_changed_and_given_back_is_as_it_was(world: World) -> None:
    reference = world.keep(talk(3 * SIZE))
    for change in CHANGES.values():
        for one in world.get(reference):
            change(one)
        del one
        assert repr(world.get(reference)) == repr(talk(3 * SIZE))


def test_a_caller_that_keeps_the_last_state_gets_copies_again(world: World) -> None:
    reference = world.keep(talk(3 * SIZE))
    seen: set[int] = set()
    last = world.get(reference)
    for _ in range(6):
        last = world.get(reference)
        seen.update(id(one) for one in last[: 2 * SIZE])
    assert len(seen) == 2 * 2 * SIZE


def test_parts_that_were_removed_are_stored_again(world: World) -> None:
    """A run says what its messages are, not that the store has them."""
    messages = talk(3 * SIZE)
    reference = world.keep(messages)
    assert world.parts._runs.same(messages, 0)
    out: dict[bytes, bytes] = {}
    assert world.parts.encode(messages, out, set()) == reference
    assert out.keys() == world.known


def test_threads_never_get_the_same_message(world: World) -> None:
    reference = world.keep(talk(6 * SIZE))
    start = Barrier(4)
    wrong: list[str] = []

    def work(name: str) -> None:
        for n in range(60):
            start.wait()
            mine = world.get(reference)
            for one in mine:
                one.name = f"{name} {n}"
            start.wait()
            wrong.extend(one.name for one in mine if one.name != f"{name} {n}")

    threads = [Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


LINES = frozenset(str(module.__file__) for module in (models, parts, runs))


def meanwhile(other: Callable[[], object], at: int, act: Callable[[], Any]) -> tuple[Any, bool]:
    """What `act` gives if `other` happens before the line `at` that it runs, as another thread could do it.

    And whether it came that far.
    """
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in LINES:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                other()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return act(), lines >= at
    finally:
        sys.settrace(before)


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> int:
    """So short that a test can go through every line of it."""
    monkeypatch.setattr(parts, "SIZE", 3)
    monkeypatch.setattr(runs, "SIZE", 3)
    return 3


@pytest.mark.parametrize(
    ("change", "is_undone"),
    [
        ("a field", False),
        ("a field", True),
        ("an empty container", False),
        ("a list inside", False),
        ("an extra field", True),
    ],
)
def test_a_change_while_it_is_stored_is_in_the_next_state(short_runs: int, change: str, is_undone: bool) -> None:
    for at in count(1):
        world, messages = World(), talk(3 * short_runs)
        one = messages[1]
        _, is_met = meanwhile(lambda: (CHANGES | DEEP)[change](one), at, lambda: world.keep(messages))  # noqa: B023
        if not is_met:
            break
        if is_undone:
            one.__dict__.update(message(1).__dict__)
            one.__pydantic_extra__.clear()
        assert world.keep(messages) == World().keep(messages), f"changed before line {at}"
        assert world.parts._runs._stored, "no run: this test would prove nothing"
    assert at > 100


def test_what_is_changed_while_it_is_handed_out_is_somebody_elses(short_runs: int) -> None:
    """Who still has something deep inside a message changes it just when the message is copied for another."""
    said = repr(talk(3 * short_runs))
    for at in count(1):
        world = World()
        reference = world.keep(talk(3 * short_runs))
        held = world.get(reference)[1].tool_calls[0]["args"]["a"]
        found, is_met = meanwhile(lambda: held.append("mine"), at, lambda: world.get(reference))  # noqa: B023
        if not is_met:
            break
        assert repr(found) == said, f"changed before line {at}"
    assert at > 50


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9))
def test_whatever_is_done_to_a_talk_it_is_stored_as_it_is(seed: int) -> None:
    """Random turns of random owners, against one who remembers nothing."""
    dice = random.Random(seed)
    world = World()
    messages = talk(dice.randrange(2 * SIZE, 4 * SIZE))
    owners: list[tuple[Any, list[Any], str]] = []
    for turn in range(8):
        for _ in range(dice.choice((0, 0, 1, 3))):
            one = dice.choice(messages)
            dice.choice([CHANGES["a field"], CHANGES["an empty container"], CHANGES["an extra field"]])(one)
        match dice.randrange(6):
            case 0:
                del messages[: dice.randrange(1, 9)]
            case 1:
                del messages[dice.randrange(len(messages))]
            case 2:
                messages.insert(dice.randrange(len(messages)), dice.choice(messages))
            case _:
                messages += [message(1000 + 10 * turn + n) for n in range(dice.randrange(3))]
        reference = world.keep(messages)
        assert reference == World().keep(messages)
        said = repr(messages)
        owners = dice.sample(owners, min(len(owners), dice.randrange(3)))
        owners.append((reference, messages, said))
        if dice.random() < 0.7:
            messages = world.get(reference)
            assert repr(messages) == said
        else:
            messages = list(messages)
            owners.pop()  # they have the same messages
    for reference, theirs, said in owners:
        assert repr(theirs) == said and repr(world.stored(reference)) == said
