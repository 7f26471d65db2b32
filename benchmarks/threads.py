"""What a conversation costs in LangGraph: ReprieveSaver against SqliteSaver, in the same run.

python -m benchmarks.threads                   400 turns of 2 KB, then 2,000 turns of ours alone
python -m benchmarks.threads --turns 100 --long 0      a look

A turn is a message of 1 KB from a person and an answer of 1 KB, with `durability="sync"`: LangGraph waits for every
checkpoint. Each saver has a graph with a whole list of messages and one with a DeltaChannel; they take turns, so that a
busy minute of the machine hits all alike. Times are the least of several (of the last fifty turns): what else the
machine does only ever adds; `turn cpu` and the times for reading are the processor's alone. The targets for disk and
turn are for the whole list, those for reading for both.

Where LangGraph or SqliteSaver are not installed, they and reprieve are, into a temporary environment.

The exit code is 0 if every target is met, 1 if one is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.ours import run_installed

try:
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    from reprieve.frameworks.langgraph import ReprieveSaver
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    sys.exit(run_installed("benchmarks.threads", extra="langgraph", beside=["langgraph-checkpoint-sqlite"]))

CONFIG: Any = {"configurable": {"thread_id": "t"}}
TARGETS = (("disk", 50), ("turn", 2), ("get_state", 2), ("history(50)", 4))
WORDS = random.Random(1)


class Whole(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _added(before: list[Any], writes: list[Any]) -> list[Any]:
    return [*before, *(message for write in writes for message in (write if isinstance(write, list) else [write]))]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_added)]


def text() -> str:
    """1 KB that no compression makes small."""
    return "".join(WORDS.choices("abcdefghijklmnopqrstuvwxyz ", k=1000))


class Talk:
    """One saver with one graph, and what was measured."""

    def __init__(self, name: str, saver: BaseCheckpointSaver[Any], state: type, folder: Path) -> None:
        self.name, self.folder = name, folder
        counter = itertools.count()

        def answer(_: Any) -> Any:
            return {"messages": [AIMessage(text(), id=f"a{next(counter)}")]}

        builder = StateGraph(state)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        self.graph = builder.compile(checkpointer=saver)
        self.turns: list[float] = []
        self.cpu: list[float] = []
        self.growth: list[int] = []
        self.measured: dict[str, float] = {}

    def turn(self) -> None:
        words = {"messages": [HumanMessage(text(), id=f"h{len(self.turns)}")]}
        started, worked = time.perf_counter(), time.process_time()
        self.graph.invoke(words, CONFIG, durability="sync")
        self.turns.append(time.perf_counter() - started)
        self.cpu.append(time.process_time() - worked)
        self.growth.append(self.size())

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def finish(self) -> None:
        """Measure what is asked of a conversation that is there."""
        count = len(self.graph.get_state(CONFIG).values["messages"])
        assert count == 2 * len(self.turns), f"{self.name}: {count} messages after {len(self.turns)} turns"
        self.measured = {
            "disk": self.size(),
            "turn": min(self.turns[-50:]),
            "turn cpu": min(self.cpu[-50:]),
            "get_state": float("inf"),
            "history(50)": float("inf"),
        }

    def read(self, name: str) -> None:
        """Measure reading once more; the least counts. The processor's time: nothing here waits for a disk."""
        started = time.process_time()
        if name == "get_state":
            self.graph.get_state(CONFIG)
        else:
            list(self.graph.get_state_history(CONFIG, limit=50))
        self.measured[name] = min(self.measured[name], time.process_time() - started)


def _least(act: Any, times: int) -> float:
    took = []
    for _ in range(times):
        started = time.perf_counter()
        act()
        took.append(time.perf_counter() - started)
    return min(took)


def talks(scratch: Path) -> list[Talk]:
    made = []
    for kind, state in (("whole list", Whole), ("DeltaChannel", Delta)):
        for peer in ("SqliteSaver", "ReprieveSaver"):
            folder = scratch / f"{peer} {kind}"
            folder.mkdir(mode=0o700)
            if peer == "SqliteSaver":
                connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
                made.append(Talk(f"{peer}, {kind}", SqliteSaver(connection), state, folder))
            else:
                made.append(Talk(f"{peer}, {kind}", ReprieveSaver(folder), state, folder))
    return made


def cold(talk: Talk, state: type) -> float:
    """get_state in a saver that has seen nothing yet."""
    fresh = Talk("fresh", ReprieveSaver(talk.folder), state, talk.folder)
    return _least(lambda: fresh.graph.get_state(CONFIG), 1)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--turns", type=int, default=400)
    words.add_argument("--long", type=int, default=2000, help="turns of the conversation whose growth is looked at")
    words.add_argument("--scratch", default=None)
    args = words.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        every = talks(Path(scratch))
        for _ in range(args.turns):
            for talk in every:
                talk.turn()
        for talk in every:
            talk.finish()
        for name, times in (("get_state", 25), ("history(50)", 4)):
            for _ in range(times):
                for talk in every:
                    talk.read(name)
        print(f"{args.turns} turns of 2 KB, load {os.getloadavg()[0]:.1f}\n")
        print("| | disk MB | turn ms | turn cpu ms | get_state ms | history(50) ms |\n|---|--:|--:|--:|--:|--:|")
        for talk in every:
            m = talk.measured
            times = " | ".join(f"{m[name] * 1000:.1f}" for name in ("turn", "turn cpu", "get_state", "history(50)"))
            print(f"| {talk.name} | {m['disk'] / 1e6:.1f} | {times} |")
        print(f"\nget_state of ours in a new process's saver: {cold(every[1], Whole) * 1000:.1f} ms\n")
        lines = _judged(every[0], every[1], TARGETS) + _judged(every[2], every[3], TARGETS[2:])
        missed = [line for line in lines if "missed" in line]
        if args.long:
            missed += _flat(Path(scratch), args.long)
    return int(bool(missed))


def _judged(peer: Talk, ours: Talk, targets: tuple[tuple[str, int], ...]) -> list[str]:
    lines = []
    for name, factor in targets:
        ratio = ours.measured[name] / peer.measured[name]
        verdict = "met" if ratio <= 1 / factor else "missed"
        lines.append(f"{ours.name}: {name} is {ratio:.3f} of the peer's, at most {1 / factor:.3f}: {verdict}")
        print(lines[-1])
    return lines


def _flat(scratch: Path, turns: int) -> list[str]:
    """Bytes that a turn adds, at turn 100 and at the end."""
    folder = scratch / "long"
    folder.mkdir(mode=0o700)
    talk = Talk("long", ReprieveSaver(folder), Whole, folder)
    for _ in range(turns):
        talk.turn()
    early = (talk.growth[200] - talk.growth[100]) / 100
    late = (talk.growth[-1] - talk.growth[-101]) / 100
    verdict = "met" if late <= 1.25 * early else "missed"
    line = f"growth per turn: {early / 1000:.1f} kB after turn 100, {late / 1000:.1f} kB at turn {turns}: {verdict}"
    print(line)
    times = [statistics.median(talk.turns[at - 50 : at]) * 1000 for at in (100, turns)]
    print(f"time per turn: {times[0]:.1f} ms at turn 100, {times[1]:.1f} ms at turn {turns}")
    return [line] if verdict == "missed" else []


if __name__ == "__main__":
    sys.exit(main())
