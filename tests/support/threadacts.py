"""Things done to threads, as a program: for tests that kill it, and for many of it at once.

    threadacts ACT FOLDER [WORD…]

Prints `ack` when what it did is durable. `look` prints all that can be seen, after proving it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from reprieve.store.thread_db import SqliteThreads
from reprieve.store.thread_sealed import covered
from reprieve.threads.ids import new_id
from reprieve.threads.items import Change, Return, note, returns
from reprieve.threads.moves import rollback
from reprieve.threads.retention import delete, prune
from reprieve.threads.threads import Threads
from reprieve.threads.values import Types
from reprieve.threads.verify import verify

STATES = 8


def talk(turns: int) -> list[str]:
    return [f"turn {n}: " + f"{n * 7919 % 1000} words " * 40 for n in range(turns)]


def main(argv: list[str]) -> int:
    act, folder, *words = argv
    act, _, is_sealed = act.partition(" ")
    store = SqliteThreads.open(os.path.join(folder, "threads.db"))
    threads = Threads(covered(store, b"k" * 32 if is_sealed else None), Types())
    {"make": make, "items": items, "put": put, "writes": writes, "rollback": back, "prune": pruned, "delete": deleted,
     "look": look, "many": many}[act](threads, *words)  # fmt: skip
    if act != "look":
        os.write(1, b"ack\n")
    threads.store.close()
    return 0


def make(threads: Threads) -> None:
    """A thread with some states and writes on each."""
    parent = ""
    for n in range(STATES):
        id = f"s{n}"
        threads.put("t", id, {"talk": talk(20 + n), "n": n}, parent=parent, meta={"step": n})
        threads.put_writes("t", id, "task", [(0, "talk", [f"more {n}"])], path="p")
        parent = id


def put(threads: Threads) -> None:
    threads.put("t", "new", {"talk": talk(60), "n": 99}, parent=f"s{STATES - 1}", meta={"step": 99})


def writes(threads: Threads) -> None:
    said: list[tuple[int, str, Any]] = [(0, "talk", talk(30)), (1, "n", 5), (-1, "__error__", "bad" * 50)]
    threads.put_writes("t", f"s{STATES - 1}", "other", said, path="q")


def back(threads: Threads) -> None:
    if threads.store.heads("t")[""] == f"s{STATES - 1}":  # who repeats it must not go back twice
        rollback(threads, "t", "s2")


def items(threads: Threads) -> None:
    if not returns(threads, "t", "s2"):
        change = Change((("users", "ada"), "tone"), {"text": "x" * 300}, {"text": "y" * 300})
        note(threads, "t", f"s{STATES - 1}", [change])


def pruned(threads: Threads) -> None:
    prune(threads, "t")


def deleted(threads: Threads) -> None:
    delete(threads, "t")


def look(threads: Threads) -> None:
    seen: dict[str, Any] = {}
    for record in threads.store.threads():
        found = verify(threads, record.id)
        states = list(threads.history(record.id))
        head = threads.get(record.id)
        seen[record.id] = {
            "problems": [list(problem) for problem in found.problems],
            "states": [state.id for state in states],
            "values": {s.id: {name: threads.value(record.id, ref) for name, ref in s.values.items()} for s in states},
            "writes": {s.id: [[w.task, w.slot, threads.value(record.id, w.value)] for w in s.writes] for s in states},
            "head": head.id if head else "",
            "items": [[list(one.place[0]), one.place[1], one.target] for one in returned(threads, record.id)],
            "seq": record.seq,
        }
    print(json.dumps({"threads": seen, "problems": threads.store.problems()}))


def returned(threads: Threads, thread: str) -> list[Return]:
    return returns(threads, thread, "s2") if threads.get(thread, "s2") else []


def many(threads: Threads, name: str, count: str, thread: str) -> None:
    """So many states and writes, each with a name of its own."""
    parent = ""
    for n in range(int(count)):
        id = new_id(parent)
        threads.put(thread, id, {"who": f"{name}/{n}"}, parent=parent, meta={"who": f"{name}/{n}"})
        if n % 20 == 0:
            threads.put_writes(thread, id, name, [(0, "who", f"{name}/{n}")])
        parent = id


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
