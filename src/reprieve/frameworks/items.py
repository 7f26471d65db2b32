"""A framework's session as a list of items on a thread: append, read, and go back together with the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reprieve.app.threads import open_threads, roll_back
from reprieve.errors import Usage
from reprieve.threads.ids import new_id
from reprieve.threads.pairs import legal_cuts
from reprieve.threads.values import Types

if TYPE_CHECKING:
    from reprieve.app.public import Workspace
    from reprieve.model.plan import Report

ITEMS = "items"


class Rolled(NamedTuple):
    """What going back did."""

    id: str  # where the session is now
    before: str  # where it was; going there brings it back
    files: Report | None


class Items:
    """Lists of plain data, one per thread and namespace. For many threads and processes."""

    def __init__(self, where: str | os.PathLike[str] | Workspace | None) -> None:
        self.threads, self._files = open_threads(where, Types())

    @property
    def has_files(self) -> bool:
        """Whether states are linked with the files of a workspace."""
        return self._files is not None

    def read(self, thread: str, ns: str = "", id: str = "") -> list[Any]:
        """The items at a state, by default the present one; none if there is no such list. Raises Usage."""
        self.threads.look(thread)
        state = self.threads.get(thread, id, ns=ns)
        if state is None:
            return []
        if ITEMS not in state.values:
            raise Usage(f"the thread '{thread}' is no session: it holds {', '.join(state.values) or 'nothing'}")
        return list(self.threads.value(thread, state.values[ITEMS], remember=True))

    def names(self, thread: str) -> list[str]:
        """Namespaces with items, besides the first."""
        return [ns for ns in self.threads.store.heads(thread) if ns and self.read(thread, ns)]

    def write(self, thread: str, change: Callable[[list[Any]], Sequence[Any]], ns: str = "") -> str:
        """Replace the items by what `change` makes of them, as a state linked with the files of this moment; its id.

        Durable, and nobody else's change comes in between.
        """
        files = self._files.position(f"session {thread}") if self._files is not None and not ns else ""
        store = self.threads.store
        with store.transaction():
            head = store.heads(thread).get(ns, "")
            id = new_id(head)
            items = list(change(self.read(thread, ns)))
            meta = {"step": len(items)}  # what `thread show` tells states apart by
            self.threads.put(thread, id, {ITEMS: items}, ns=ns, parent=head, meta=meta, files=files)
        return id

    def rollback(self, thread: str, id: str, *, files: bool) -> Rolled:
        """Make a state the present one. It ends where every call has its result. What is given up stays readable.

        `files`: those of that moment too; they go first. Raises BadRef, Usage, Conflict, Refused with nothing moved.
        """
        moved, _, report = roll_back(self.threads, self._files, thread, id, with_files=files)
        items, now = self.read(thread), moved.id
        legal = legal_cuts(items)[-1]
        if legal < len(items):
            now = self.write(thread, lambda items: items[:legal])
        return Rolled(now, moved.before, report)

    def close(self) -> None:
        """Let go of the store. A workspace stays open."""
        self.threads.store.close()
