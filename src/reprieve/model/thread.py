"""What a thread is made of: entries on a chain of their own, and the record that says where the chain ends."""

from __future__ import annotations

from typing import NamedTuple

# kinds of entries
STATE = "state"  # one state of an agent, in a namespace
WRITES = "writes"  # what tasks have written on top of a state and the next state has not taken up yet
MOVE = "move"  # heads set elsewhere: a rollback
ITEMS = "items"  # what a step changes in a long-term store
PRUNE = "prune"  # entries given up; carries what is needed to do without them


class ThreadEntry(NamedTuple):
    """One row of a thread's chain. A tuple: lists of hundreds are made for every look at a history."""

    seq: int
    kind: str
    ns: str  # namespace: "" is the agent itself, others are its subgraphs
    id: str  # of the state that it is, or is about
    parent: str  # the state that it came from, "" if none
    created_at: int  # ns since 1970, for people
    body: bytes  # JSON (docs/format.md, Threads)
    prev: bytes
    hash: bytes
    is_current: bool = True  # False: a state that was stored again under its id


class ThreadRecord(NamedTuple):
    """A thread as a whole. One that was deleted keeps its record, so that a late writer does not bring it back."""

    id: str
    seq: int  # of the newest entry
    hash: bytes
    created_at: int
    deleted_at: int = 0  # ns; 0: never deleted. Entries may have been added since
    is_deleted: bool = False
