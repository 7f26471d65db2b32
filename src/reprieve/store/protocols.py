"""What a store must do. Imported for type checking only; implementations do not inherit from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from reprieve.model.timeline import Draft, TimelineEntry, WorkspaceRecord

Buffer = bytes | bytearray | memoryview


class BlobStore(Protocol):
    """Content by its SHA-256. Objects never change; put may be called twice with the same object."""

    def put(self, items: Iterable[tuple[bytes, Buffer]]) -> int:
        """Take objects (id, bytes) that may be stored already; return how many were new.

        The caller vouches that id is the SHA-256 of the bytes. An object that is stored already is verified once per
        process before it is trusted; a damaged one is stored anew (healed). Not durable before `flush`. Buffers may be
        reused by the caller after the call returns. Raises StoreFailed; then nothing put since the last flush is kept,
        and an operation that goes on regardless is refused. Each thread's objects are its own until its flush.
        """

    def start_flush(self) -> None:
        """Begin with what `flush` will have to do, if that helps. Raises like `put`."""

    def flush(self) -> None:
        """Make everything put so far durable and findable. Raises StoreFailed; then nothing of it may be relied on."""

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those of ids that are stored and not known to be damaged."""

    def get(self, id: bytes) -> bytes:
        """The bytes, verified. Raises StoreCorrupted (damaged or missing; the message names the object)."""

    def prefetch(self, ids: Iterable[bytes]) -> None:
        """These will be asked for by the next `get_many`: begin, if that helps. Never raises for what they are."""

    def get_many(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Verified objects in the store's own best order, each once. Raises like `get`."""

    def check(self, ids: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, str]]:
        """Problems (id, reason) among ids (None: all objects). Damaged ones are remembered; a later put heals them."""

    def damaged(self) -> set[bytes]:
        """Objects known to be damaged or missing."""

    def drop(self, live: set[bytes]) -> int:
        """Do, with the caller's transaction, what `collect` of the same set would need room on the disk for.

        What makes objects dead and what forgets them then become durable together, or not at all. Returns how many
        objects are gone by that; the store may leave all of them to `collect`. Raises StoreFailed. The caller holds the
        gc lock exclusively and has flushed what it has put.
        """

    def collect(self, live: set[bytes]) -> tuple[int, int]:
        """Drop every object not in live and give the bytes back to the disk; return (objects, bytes) freed.

        Runs alone: the caller holds the gc lock exclusively and is in no transaction (no rollback brings files back).
        A StoreFailed has `objects` and `bytes` in its data: what was freed before it.
        """


class Timeline(Protocol):
    """The append-only, hash-chained log of one workspace."""

    def append(self, draft: Draft) -> TimelineEntry: ...
    # what is used to move a tree is proven: StoreCorrupted rather than an entry that is not what was written
    def head(self) -> TimelineEntry | None: ...
    def tip(self) -> TimelineEntry | None:
        """The newest entry, not proven: only to go on from it."""

    def get(self, id: str) -> TimelineEntry | None: ...
    def at(self, seq: int) -> TimelineEntry | None: ...

    def newest_first(
        self, *, limit: int = 0, before_seq: int = 0, kinds: Sequence[str] = (), search: str = ""
    ) -> Iterator[TimelineEntry]:
        """For people, not proven: what a list shows may be damaged, what a command acts on may not."""

    def backwards(self) -> Iterator[TimelineEntry]:
        """Entries from the newest on, each proven and none left out."""

    def after(self, seq: int) -> Iterator[TimelineEntry]:
        """Entries with a larger seq, oldest first, each proven and none left out."""

    def readable(self) -> Iterator[TimelineEntry]:
        """All entries that can be read at all, oldest first: for finding out what is damaged."""

    def matching(self, text: str) -> list[TimelineEntry]:
        """The entry with this id, else those whose id begins so, or that are called so (`title`); newest first."""

    def before_time(self, ns: int) -> TimelineEntry | None:
        """The newest entry that one can return to (not a prune or forget), made at or before that time."""

    # full trees, a side table: entries' deltas are on the chain, full trees are checkpoints' shortcuts
    def set_full(self, seq: int, object_id: bytes) -> None: ...
    def fulls(self) -> list[tuple[int, bytes]]: ...
    def full_at_or_before(self, seq: int) -> tuple[int, bytes] | None: ...
    def drop_trees(self, seqs: Sequence[int]) -> None:
        """Mark entries as pruned: their delta and full tree are no longer kept."""

    # marks: what people say about entries; not part of the chain
    def pin(self, id: str, *, pinned: bool = True) -> None: ...
    def rename(self, id: str, name: str | None) -> None:
        """Give an entry a name, which stands for its label; "": it has its label again, None: nor that."""

    def verify(self) -> Iterator[tuple[int, str]]:
        """Problems (seq, reason): changed, missing, reordered or cut entries. Never raises for a damaged entry."""

    # the write-ahead intent of an operation under way (at most one)
    def intent(self) -> bytes: ...
    def set_intent(self, intent: bytes) -> None: ...


class Store(Protocol):
    """A home: workspaces, their timelines, and the content they share."""

    @property
    def blobs(self) -> BlobStore: ...
    def workspaces(self) -> list[WorkspaceRecord]: ...
    def save_workspace(self, record: WorkspaceRecord) -> None:
        """Insert or update by id (intent excluded)."""

    def problems(self) -> list[str]:
        """What is wrong with the tables that hold all this, in words; entries and objects have checks of their own."""

    def timelines(self) -> set[str]:
        """Ids of the workspaces that have entries, whether or not `workspaces` knows them."""

    def timeline(self, workspace_id: str) -> Timeline: ...
    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside becomes durable together at the outermost exit, or not at all. Nests by joining."""

    def lock(self, workspace_id: str, *, wait_s: float = 60.0) -> AbstractContextManager[None]:
        """One process and thread at a time works on a workspace; re-entrant in the holder. Dies with its process.

        Also holds off gc, until the outermost one of a thread is left; also if something was put and not flushed by
        then. Waiting is said through the reporter after a second; StoreLocked after wait_s.
        """

    def gc_lock(self, *, wait_s: float = 60.0) -> AbstractContextManager[None]:
        """Alone in the whole store. Inside `lock` it takes the shared lock's place; commit everything before."""

    def close(self) -> None: ...
