"""Values are cut into parts that are kept once; what is handed out is the caller's own."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from reprieve.errors import StoreCorrupted
from reprieve.frameworks.langgraph_types import langgraph_types
from reprieve.model.thread import ThreadRecord
from reprieve.store.thread_memory import MemoryThreads
from reprieve.threads.parts import Parts


class World:
    def __init__(self) -> None:
        self.store = MemoryThreads()
        self.store.save_thread(ThreadRecord("t", 0, bytes(32), 0))
        self.parts = Parts(self.store, langgraph_types())
        self.known: set[bytes] = set()

    def keep(self, value: Any) -> tuple[Any, int, int]:
        """The reference, and how many parts and bytes were new."""
        out: dict[bytes, bytes] = {}
        reference = self.parts.encode(value, out, self.known)
        self.store.put_parts("t", out)
        self.known.update(out)
        return reference, len(out), sum(map(len, out.values()))

    def fresh(self) -> Parts:
        return Parts(self.store, langgraph_types())


@pytest.fixture
def world() -> World:
    return World()


def talk(count: int) -> list[Any]:
    dice = random.Random(5)
    return [HumanMessage("".join(dice.choices("abcdef ", k=500)), id=f"m{n}") for n in range(count)]


@settings(max_examples=60)
@given(st.lists(st.text(max_size=90) | st.integers() | st.lists(st.integers(), max_size=3), max_size=300))
def test_any_list_comes_back(value: list[Any]) -> None:
    world = World()
    reference, _, _ = world.keep(value)
    assert world.fresh().decode(reference) == value
    assert world.parts.decode(reference, set()) == value
    assert world.fresh().plain(reference) == value


@pytest.mark.parametrize(
    "value", [{"a": 1}, {"a": "x" * 2000, "b": ["y" * 100] * 20}, {1: "x" * 2000}, {"$": "z" * 2000}, "x" * 99]
)
def test_dicts_and_texts_come_back(world: World, value: Any) -> None:
    reference, _, _ = world.keep(value)
    assert world.fresh().decode(reference) == value


@pytest.mark.parametrize("length", [20, 400, 3000])
def test_a_turn_more_costs_what_is_new_however_long_the_talk_is(world: World, length: int) -> None:
    messages = talk(length + 1)
    world.keep(messages[:-1])
    _, parts, size = world.keep(messages)
    assert parts <= 8 and size < 500 + 5 * 32 * 32
    assert world.keep(list(messages))[1] == 0


def test_a_talk_that_loses_its_beginning_shares_the_rest(world: World) -> None:
    messages = talk(1000)
    world.keep(messages)
    assert world.keep(messages[7:])[1] <= 6
    assert world.keep([*messages[:500], messages[0], *messages[500:]])[1] <= 8


def test_one_value_of_a_large_dict_is_stored_alone(world: World) -> None:
    files = {f"f{n}.py": f"{n} " * 500 for n in range(50)}
    world.keep(files)
    files["f7.py"] += "changed"
    _, parts, size = world.keep(files)
    assert parts == 2 and size < 10_000


def test_what_is_handed_out_is_the_callers_own(world: World) -> None:
    messages = [AIMessage("hello " * 20, id="1", tool_calls=[{"name": "f", "args": {"a": [1]}, "id": "c"}]), *talk(20)]
    reference, _, _ = world.keep(messages)
    first = world.parts.decode(reference, world.known)
    first[0].content = "changed"
    first[0].tool_calls[0]["args"]["a"].append(2)
    first[1].additional_kwargs["x"] = 1
    assert world.parts.decode(reference, world.known) == messages


def test_a_message_that_was_changed_in_place_is_stored_as_it_is_now(world: World) -> None:
    """Recognising an object must not mean that its change is overlooked."""
    messages = talk(20)
    messages.append(ToolMessage("result", tool_call_id="c", artifact={"rows": [1, 2]}, id="tool"))
    world.keep(messages)
    changes = [
        lambda m: setattr(m[3], "content", "other"),
        lambda m: m[4].additional_kwargs.update(a=1),
        lambda m: m[4].additional_kwargs.update(a=True),
        lambda m: m[4].additional_kwargs.update(a=1.0),
        lambda m: m[-1].artifact["rows"].append(3),
        lambda m: setattr(m[5], "name", "n"),
        lambda m: setattr(m[6], "extra_field", "more"),
    ]
    for change in changes:
        change(messages)
        reference, parts, _ = world.keep(messages)
        assert parts > 0
        back = world.fresh().decode(reference)
        assert back == messages and repr(back) == repr(messages)
    again = world.parts.decode(reference, world.known)
    again[2].content = "changed after reading"
    assert world.fresh().decode(world.keep(again)[0])[2].content == "changed after reading"


def test_a_damaged_or_missing_part_is_named(world: World) -> None:
    reference, _, _ = world.keep(talk(20))
    hash = next(h for h, body in world.store._parts.items() if body[:1] == b"V")
    good = world.store._parts[hash]
    world.store._parts[hash] = good[:-3] + b"x" + good[-2:]
    with pytest.raises(StoreCorrupted, match="damaged"):
        world.fresh().decode(reference)
    del world.store._parts[hash]
    with pytest.raises(StoreCorrupted, match="missing"):
        world.fresh().decode(reference)


def test_all_that_a_reference_needs_is_reached(world: World) -> None:
    references = [world.keep(value)[0] for value in (talk(300), {"a": "x" * 2000, "b": talk(20)}, "y" * 99, 5)]
    assert world.fresh().reach(references) == set(world.store._parts)


def test_a_copy_is_handed_out_again_only_when_nobody_has_it_or_its_fields(world: World) -> None:
    reference, _, _ = world.keep(talk(20))
    first = world.parts.decode(reference, world.known)
    held, fields, kwargs = first[0], first[1].__dict__, first[2].additional_kwargs
    ids = [id(one) for one in first]
    first[3].content, first[4].additional_kwargs["x"] = "changed", 1
    del first
    second = world.parts.decode(reference, world.known)
    assert second == talk(20)
    assert second[0] is not held and second[1].__dict__ is not fields and second[2].additional_kwargs is not kwargs
    assert [id(one) for one in second[3:]] == ids[3:], "nobody had those"
    held.content, fields["content"] = "mine", "mine"
    kwargs["x"] = 1
    assert second == talk(20)
    assert world.keep(second)[1] == 0, "and they are still recognised"


def test_a_set_that_is_filled_and_a_tuple_that_becomes_a_list_are_noticed(world: World) -> None:
    messages = [*talk(20), *(ToolMessage("r", tool_call_id="c", artifact=a, id="x") for a in (set(), {"a": (1,)}))]
    before, _, _ = world.keep(messages)
    messages[20].artifact.add(1)
    filled, _, _ = world.keep(messages)
    messages[21].artifact["a"] = [1]
    listed, _, _ = world.keep(messages)
    assert repr(world.fresh().decode(before)[20:]) != repr(world.fresh().decode(filled)[20:])
    assert repr(world.fresh().decode(listed)) == repr(messages)


def test_a_list_in_a_tuple_is_the_callers_own_too(world: World) -> None:
    reference, _, _ = world.keep([*talk(20), ToolMessage("r", tool_call_id="c", artifact={"a": ([1],)}, id="x")])
    world.parts.decode(reference, world.known)[20].artifact["a"][0].append(2)
    assert world.parts.decode(reference, world.known)[20].artifact == {"a": ([1],)}
