"""Random graphs and random histories on them, played on a saver; and how two savers' accounts are compared."""

from __future__ import annotations

import asyncio
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def joined(before: list[Any], writes: list[Any]) -> list[Any]:
    """The reducer of a delta channel: many writes at once."""
    return [*before, *(item for write in writes for item in write)]


class State(TypedDict):
    p: Annotated[list[str], operator.add]
    d: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=3)]
    x: str


@dataclass
class Plan:
    """A graph as data: layers of nodes, each layer after the one before; some nodes ask, one may be a subgraph."""

    layers: list[list[str]]
    asks: set[str] = field(default_factory=set)
    nested: str = ""
    is_stateful: bool = False  # the subgraph remembers from call to call

    @classmethod
    def draw(cls, dice: random.Random) -> Plan:
        layers = [[f"n{at}{k}" for k in range(dice.choice((1, 1, 2, 3)))] for at in range(dice.choice((1, 2, 2, 3)))]
        names = [name for layer in layers for name in layer]
        asks = {name for name in names if dice.random() < 0.2}
        nested = dice.choice(names) if dice.random() < 0.3 else ""
        return cls(layers, asks - {nested}, nested, dice.random() < 0.5)


def node(name: str, *, asks: bool = False) -> Callable[[State], Any]:
    """A node that says its name in every channel, with what it saw."""

    def act(state: State) -> Any:
        answer = f"={interrupt(f'{name}?')}" if asks else ""
        return {"p": [f"{name}/{len(state.get('p', []))}{answer}"], "d": [f"{name}/{len(state.get('d', []))}{answer}"]}

    return act


def compiled(plan: Plan, saver: BaseCheckpointSaver[Any]) -> Any:
    """The graph of a plan on a saver."""
    builder = StateGraph(State)
    for name in (name for layer in plan.layers for name in layer):
        if name == plan.nested:
            inner = StateGraph(State)
            inner.add_node("in1", node("in1"))
            inner.add_node("in2", node("in2", asks=len(plan.layers) > 1))
            inner.add_edge(START, "in1")
            inner.add_edge("in1", "in2")
            inner.add_edge("in2", END)
            builder.add_node(name, inner.compile(checkpointer=True if plan.is_stateful else None))
        else:
            builder.add_node(name, node(name, asks=name in plan.asks))
    before: list[str] = [START]
    for layer in plan.layers:
        for name in layer:
            if len(before) > 1:
                builder.add_edge(before, name)
            else:
                builder.add_edge(before[0], name)
        before = layer
    for name in before:
        builder.add_edge(name, END)
    return builder.compile(checkpointer=saver)


@dataclass
class Player:
    """Plays a history on one saver; the same seed gives the same history on any."""

    graph: Any
    durability: Any
    is_async: bool

    def run(self, given: Any, config: Any) -> Any:
        if self.is_async:
            return asyncio.run(self.graph.ainvoke(given, config, durability=self.durability))
        return self.graph.invoke(given, config, durability=self.durability)

    def act(self, dice: random.Random, turn: int) -> str:
        """One random thing, told in a word; what goes wrong is part of the story."""
        history = list(self.graph.get_state_history(CONFIG))
        word = dice.choice(("say", "say", "answer", "go on", "replay", "update", "rewrite"))
        at = dice.randrange(len(history)) if history else 0
        if not history:
            word = "say"
        try:
            if word == "say":
                self.run({"p": [f"u{turn}"], "d": [f"u{turn}"], "x": f"x{turn}"}, CONFIG)
            elif word == "answer":
                waiting = [i for task in history[0].tasks for i in task.interrupts]
                answers = {i.id: f"yes{turn}" for i in waiting}
                self.run(Command(resume=answers if len(waiting) > 1 else f"yes{turn}"), CONFIG)
            elif word == "go on":
                self.run(None, CONFIG)
            elif word == "replay":
                self.run(None, history[at].config)
            elif word == "update":
                self.graph.update_state(CONFIG, {"p": [f"w{turn}"], "d": [f"w{turn}"]})
            else:
                self.graph.update_state(history[at].config, {"p": [f"r{turn}"], "d": [f"r{turn}"], "x": "r"})
        except Exception as error:  # both savers must make the graph fail alike
            return f"{word} {at}: {type(error).__name__}"
        return f"{word} {at}"

    def account(self) -> list[Any]:
        """All that can be seen, with ids told by their place."""
        history = list(self.graph.get_state_history(CONFIG))
        places = {s.config["configurable"]["checkpoint_id"]: at for at, s in enumerate(reversed(history))}
        told: list[Any] = [self._told(self.graph.get_state(CONFIG, subgraphs=True), places)]
        return told + [self._told(state, places) for state in history]

    def _told(self, state: Any, places: dict[str, int]) -> Any:
        above = state.parent_config and places.get(state.parent_config["configurable"]["checkpoint_id"], "?")
        tasks = [
            (task.name, task.error and str(task.error), [i.value for i in task.interrupts], bool(task.result),
             self._inside(task.state))
            for task in state.tasks
        ]  # fmt: skip
        meta = {key: value for key, value in (state.metadata or {}).items() if key in ("source", "step")}
        return (state.values, state.next, meta, above, tasks)

    def _inside(self, state: Any) -> Any:
        """A subgraph's state as the task shows it: itself, or the config that leads to it."""
        if state is None or isinstance(state, dict):
            return None if state is None else sorted(state["configurable"])
        return (state.values, state.next, [i.value for i in state.interrupts])
