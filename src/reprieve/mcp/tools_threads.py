"""Tools about agents' states: save, load, compare, fork, hand over, prove, and search."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reprieve.app import thread_views as views
from reprieve.app.render import entry_json
from reprieve.app.threads import Files, open_threads, path_of, save_state
from reprieve.errors import BadRef, Misconfigured, Usage
from reprieve.mcp import schemas as s
from reprieve.mcp.tool import Call, Json, Tool, page
from reprieve.mcp.tools_files import _PLANNED, plan
from reprieve.model.timeline import CHECKPOINT, MOVES
from reprieve.store.thread_memory import MemoryThreads
from reprieve.threads import handoff, moves
from reprieve.threads.search import search
from reprieve.threads.threads import Threads
from reprieve.threads.values import Types


@contextmanager
def _threads(call: Call, *, create: bool = False) -> Iterator[tuple[Threads, Files | None]]:
    with call.workspace(create=create) as ws:
        if not create and not os.path.lexists(path_of(ws)):
            yield Threads(MemoryThreads(), Types()), None  # none yet, and looking makes none
            return
        threads, files = open_threads(ws, Types())
        try:
            yield threads, files
        finally:
            threads.store.close()


def _save(call: Call) -> Json:
    state: dict[str, Any] = call.args["state"]
    if len(json.dumps(state)) > s.LONG:
        raise Usage(f"'state' is larger than {s.LONG >> 10} KiB", hints=["keep large content in files"])
    thread = call.text("thread")
    with _threads(call, create=True) as (threads, files):
        if call.flag("with_files"):
            call.desk.count_checkpoint()
        id = save_state(threads, files if call.flag("with_files") else None, thread, state, label=f"state of {thread}")
        saved = threads.get(thread, id)
        assert saved is not None
        return {"thread": thread, "state": views.state_json(saved)}


def _load(call: Call) -> Json:
    thread = call.text("thread")
    with _threads(call) as (threads, _):
        id = views.find_state(threads, thread, call.text("state"))
        found = threads.get(thread, id)
        if found is None:
            raise BadRef(f"the thread '{thread}' has no state '{id}'")
        return {
            "thread": thread,
            "state": {**views.state_json(found), "values": views.values_json(threads, thread, id)},
        }


def _list(call: Call) -> Json:
    with _threads(call) as (threads, _):
        if thread := call.text("thread"):
            record = views.find_thread(threads, thread)
            states, cursor = page(list(views.states_json(threads, thread)), call)
            return {"threads": [views.thread_json(threads, record)], "states": states, "next_cursor": cursor}
        found = [views.thread_json(threads, record) for record in threads.store.threads() if not record.is_deleted]
        shown, cursor = page(found, call)
        return {"threads": shown, "states": [], "next_cursor": cursor}


def _diff(call: Call) -> Json:
    with _threads(call) as (threads, _):
        return views.diff_json(threads, call.text("thread"), call.text("before"), call.text("after"))


def _rollback(call: Call) -> Json:
    asked = {name: call.args[name] for name in ("thread", "state", "with_files") if call.args.get(name)}
    return plan(call, "thread_rollback", asked)


def _fork(call: Call) -> Json:
    thread, new = call.text("thread"), call.text("new_thread")
    with _threads(call) as (threads, _):
        id = views.find_state(threads, thread, call.text("state"))
        moved = moves.fork(threads, thread, id, new)
        return {"thread": new, "head": moved.id, "forked_from": f"{thread}:{id}"}


def _handoff(call: Call) -> Json:
    with _threads(call) as (threads, _):
        id = views.find_state(threads, call.text("thread"), call.text("state"))
        return {"handoff": handoff.handoff(threads, call.text("thread"), id, to_agent=call.text("to_agent"))}


def _adopt(call: Call) -> Json:
    described, new = call.args["handoff"], call.text("new_thread")
    with _threads(call) as (threads, _):
        moved = handoff.adopt(threads, described, new)
        origin = f"{described.get('thread_id')}:{described.get('checkpoint_id')}"
        return {"thread": new, "head": moved.id, "adopted_from": origin, "verified": True}


def _verify(call: Call) -> Json:
    with _threads(call) as (threads, _):
        names = [call.text("thread")] if call.maybe("thread") else []
        return views.proof_json(threads, names, expect=call.text("expect"))


def _search(call: Call) -> Json:
    query = call.text("query")
    try:
        with _threads(call) as (threads, _):
            hits = [views.hit_json(hit) for hit in search(threads, query, thread=call.text("thread"), limit=call.limit)]
        with call.workspace() as ws:
            kinds = (CHECKPOINT, *MOVES)
            found = [] if call.maybe("thread") else list(ws.log(limit=call.limit, search=query, kinds=kinds))
            return {"hits": hits, "entries": [entry_json(entry) for entry in found]}
    except Misconfigured:
        return {"hits": [], "entries": []}  # nothing is protected yet, so nothing can be found


_THREAD = s.text("The thread", least=1)
_NEW = s.text("A name that no thread has", least=1)
_STATE = s.text("A state: its id or a unique part of it, `~N` for N states before the newest; default: the head")

TOOLS = (
    Tool(
        "thread_save", "Save a state",
        "Append a state (any JSON object) to a thread; nothing is overwritten. With `with_files` the checkpoint of the "
        "folder goes with it, so that both can be taken back together.",
        _save,
        s.takes(("thread", "state"), thread=_THREAD, state={"type": "object", "description": "The state, as JSON"},
                with_files=s.flag("Link it with a checkpoint of the folder")),
        s.gives("thread", "state", thread=s.S, state=s.STATE),
    ),
    Tool(
        "thread_load", "Load a state",
        "A state with its values: the newest, or a given one. This is how to go on with earlier work.",
        _load, s.takes(("thread",), thread=_THREAD, state=_STATE),
        s.gives("thread", "state", thread=s.S, state=s.STATE),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "thread_list", "List threads or states",
        "All threads, or with `thread` the states of one, newest first, abandoned ones included.",
        _list, s.takes(thread=s.text("List the states of this one"), **s.PAGE),
        s.gives("threads", "states", threads=s.listed(s.THREAD), states=s.listed(s.STATE), next_cursor=s.CURSOR_OUT),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "thread_diff", "Compare two states",
        "What was added, removed and changed between two states, at every depth.",
        _diff, s.takes(("thread", "before"), thread=_THREAD, before={**_STATE, "minLength": 1}, after=_STATE),
        s.gives("before", "after", "differences", before=s.S, after=s.S, differences=s.listed(s.ANY)),
        reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "thread_rollback", "Plan to go back to a state",
        "Plan to make an earlier state the newest again (default: the one before), with `with_files` together with the "
        "folder of that moment. Nothing is erased. It answers with a plan; reprieve_apply_plan carries it out.",
        _rollback,
        s.takes(("thread",), thread=_THREAD, state=_STATE, with_files=s.flag("Take the folder back, too"), **s.PAGE),
        _PLANNED, reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "thread_fork", "Fork a thread",
        "Begin a new thread with a state of another; the other one stays as it is.",
        _fork, s.takes(("thread", "new_thread"), thread=_THREAD, state=_STATE, new_thread=_NEW),
        s.gives("thread", "head", "forked_from", thread=s.S, head=s.S, forked_from=s.S),
    ),
    Tool(
        "thread_handoff", "Hand a state over",
        "A description of a state for another agent, which pins it by its hash.",
        _handoff,
        s.takes(("thread",), thread=_THREAD, state=_STATE, to_agent=s.text("Who is to have it")),
        s.gives("handoff", handoff=s.ANY), reads=True, repeats=True, has_foreign_text=True,
    ),
    Tool(
        "thread_adopt", "Take a state over",
        "Begin a new thread with a state that was handed over, if it is still exactly that; else nothing happens.",
        _adopt,
        s.takes(("handoff", "new_thread"), handoff={"type": "object", "description": "What the hand-off gave"},
                new_thread=_NEW),
        s.gives("thread", "head", "adopted_from", "verified", thread=s.S, head=s.S, adopted_from=s.S, verified=s.B),
    ),
    Tool(
        "thread_verify", "Prove threads",
        "Check that every state is what was written and that none is missing. Damage is an error that names it.",
        _verify,
        s.takes(thread=s.text("Only this one"), expect=s.text("An earlier hash: the thread must still contain it")),
        s.gives("threads", "problems", threads=s.listed(s.ANY), problems=s.listed(s.ANY)),
        reads=True, repeats=True,
    ),
    Tool(
        "search", "Find text in states and on the timeline",
        "States that hold a text, and entries of the timeline that speak of it.",
        _search,
        s.takes(("query",), query=s.text("What to look for", most=s.TEXT, least=1),
                thread=s.text("Only in this thread"), limit=s.LIMIT),
        s.gives("hits", "entries", hits=s.listed(s.ANY), entries=s.listed(s.ENTRY)),
        reads=True, repeats=True, has_foreign_text=True,
    ),
)  # fmt: skip
