"""What a store of threads must do. Imported for type checking only; implementations do not inherit from this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from reprieve.model.thread import ThreadEntry, ThreadRecord


class ThreadStore(Protocol):
    """Entries and the parts that they refer to. Any thread may call; changes happen inside `transaction`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything inside becomes durable together at the outermost exit, or not at all. Nests by joining.

        One writer at a time, over all threads and processes: what is read inside stays true until the end.
        """

    @property
    def sweeps(self) -> int:
        """Grows whenever parts are removed: what a process remembers of stored parts holds only until then."""

    def thread(self, id: str) -> ThreadRecord | None: ...
    def threads(self) -> list[ThreadRecord]:
        """All of them, deleted ones included, oldest first."""

    def save_thread(self, record: ThreadRecord) -> None:
        """Insert or update by id."""

    def clear_thread(self, id: str) -> None:
        """Remove a thread's entries, heads and parts; its record stays."""

    def append(self, thread: str, entry: ThreadEntry) -> None:
        """Add an entry; the thread's record moves along. A state that replaces one of its id makes that one old."""

    def entries(
        self, thread: str, *, kinds: Sequence[str] = (), ns: str | None = None, after: int = 0, old: bool = True
    ) -> list[ThreadEntry]:
        """Oldest first, those after a seq. `old`: also states that were stored again."""

    def about(self, thread: str, ns: str, ids: Sequence[str]) -> list[ThreadEntry]:
        """The current state and the writes of each of these states, oldest first."""

    def states(
        self, thread: str, ns: str | None, *, limit: int = 0, before_seq: int = 0, before_id: str = ""
    ) -> list[ThreadEntry]:
        """Current states, newest first; `before_id` leaves out ids that are not smaller."""

    def seq_of(self, thread: str, ns: str, id: str) -> int:
        """Of the current state with this id; 0 if there is none."""

    def drop(self, thread: str, seqs: Iterable[int]) -> None:
        """Remove entries."""

    def heads(self, thread: str) -> dict[str, str]:
        """By namespace: the id of the state that is the present one; "" where a rollback left none."""

    def set_heads(self, thread: str, heads: Mapping[str, str]) -> None: ...

    def put_parts(self, thread: str, parts: Mapping[bytes, bytes]) -> None:
        """Keep parts (hash, body) for a thread; those that are there already are kept once."""

    def share_parts(self, source: str, target: str) -> None:
        """Keep all parts of one thread for another too."""

    def parts(self, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those that are there, unchecked."""

    def part_hashes(self, thread: str) -> list[bytes]:
        """Of all parts kept for a thread."""

    def keep_parts(self, thread: str, live: set[bytes]) -> int:
        """Let go of a thread's other parts; what no thread keeps is removed. Returns how many were let go."""

    def mark(self) -> str:
        """What `set_mark` said; "" at first."""

    def set_mark(self, text: str) -> None:
        """Keep a word about the store as a whole: with which key it is sealed."""

    def problems(self) -> list[str]:
        """What is wrong with the tables themselves."""

    def settle(self) -> None:
        """See to it that what was removed cannot be read in any file. Outside of any transaction."""

    def compact(self) -> None:
        """Give unused room back to the disk. Outside of any transaction."""

    def close(self) -> None: ...
