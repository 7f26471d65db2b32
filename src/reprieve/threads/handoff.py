"""Give a state to another agent, and take one over: only what was handed over, and only if it is still exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprieve.errors import BadRef, Refused
from reprieve.threads.moves import Moved, fork
from reprieve.threads.threads import Threads
from reprieve.threads.verify import TAMPERED, verify


def handoff(threads: Threads, thread: str, id: str = "", *, to_agent: str = "") -> dict[str, Any]:
    """A descriptor of a state (default: the head) for another agent. It pins the thread by its hash up to now."""
    record = threads.record(thread)
    state = threads.get(thread, id)
    if record is None or state is None:
        what = f"the thread '{thread}' has no state '{id}'" if record else f"there is no thread '{thread}'"
        raise BadRef(what, hints=["see which there are: reprieve thread list"])
    return {
        "source": "reprieve",
        "thread_id": thread,
        "checkpoint_id": state.id,
        "seq": record.seq,
        "sha256": record.hash.hex(),
        "to_agent": to_agent or None,
        "summary": summary(state.values),
    }


def adopt(threads: Threads, described: Mapping[str, Any], new: str, *, source: Threads | None = None) -> Moved:
    """Begin a new thread with a state that was handed over. `source`: where it is, if in another store.

    Raises Refused if the descriptor has no hash, or the thread is not what was handed over; Conflict if `new` exists.
    """
    source = source or threads
    thread, id = str(described.get("thread_id", "")), str(described.get("checkpoint_id", ""))
    expected, seq = described.get("sha256"), described.get("seq")
    if not isinstance(expected, str) or not expected or type(seq) is not int:
        raise Refused("the hand-off has no hash, so nobody can tell what it is; nothing was adopted")
    with source.store.transaction():
        found = verify(source, thread, expect=expected)
        entry = next((e for e in source.store.entries(thread, after=seq - 1) if e.seq == seq), None)
        if found.problems or entry is None or entry.hash.hex() != expected:
            bad = any(problem.status == TAMPERED for problem in found.problems) or entry is not None
            raise Refused(
                f"the thread '{thread}' is not what was handed over:"
                f" {'it was changed' if bad else 'a part of it is missing'}; nothing was adopted",
                details=[f"entry {p.seq}: {p.status}: {p.reason}" for p in found.problems[:5]],
                hints=["ask for a new hand-off"],
            )
        note = {"adopted_from": f"{thread}:{id}", "adopted_sha256": expected}
        return fork(source, thread, id, new, into=threads, up_to=seq, note=note)


def summary(values: Mapping[str, Any]) -> str:
    """What a state holds, in one line: its names."""
    names = [name for name in values if not name.startswith(("__", "branch:"))]
    return ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "")
