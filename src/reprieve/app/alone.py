"""Promise the checkpoint before a call in a hook that no helper answers: without SQLite and most of our modules.

The ticket is a file that the last command left (`promising`). Whether something changed, the scan tells that was begun
while Python loaded this (`files.ahead`). Loaded before all else in a hook: nothing heavy is imported here.
"""

from __future__ import annotations

import marshal
import os
import stat

from reprieve.app import places
from reprieve.app.hook_folders import named_folders
from reprieve.app.promising import Ticket, fits, promise
from reprieve.files import ahead, tree
from reprieve.files.index import load_index
from reprieve.store import promises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprieve.model.hookevent import HookEvent

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def promise_alone(event: HookEvent, variables: Mapping[str, str], *, can_note: bool) -> bool:
    """Whether the checkpoint before that call is promised; else it has to be taken, by who says what is wrong."""
    try:
        home = places.home()
        if not _is_ours(home):
            return False
        ticket = _ticket(home, named_folders(event, variables))
        if ticket is None or ticket.home != home or not fits(ticket, event, variables):
            return False
        with _Opened() as opened:
            # closing the database drops no lock: SQLite has not opened it in this process
            database = opened(os.path.join(ticket.home, "store.db"), _READ)
            slot = opened(promises.path_of(ticket.home, ticket.workspace), _READ & ~os.O_RDONLY | os.O_RDWR)
            root = opened(os.fsdecode(ticket.root), _READ | os.O_DIRECTORY)

            def is_unchanged() -> bool:
                index = load_index(ticket.index, ticket.tag)
                found = ahead.peek(root, index.base) if index is not None and index.base is not None else None
                return found is not None and not (tree.count(found[0]) or found[1] or found[2])

            return promise(ticket, event, can_note=can_note, database=database, slot=slot, is_unchanged=is_unchanged)
    except (OSError, ValueError):  # ValueError: a damaged index
        return False


def _is_ours(home: str) -> bool:
    """Whether nobody else can have written there what is read from it; `store.home` says what is wrong if so."""
    st = os.lstat(home)
    return stat.S_ISDIR(st.st_mode) and st.st_uid == os.geteuid() and not st.st_mode & 0o077


def _ticket(home: str, folders: list[str]) -> Ticket | None:
    """Of the workspace that the first of these is in."""
    at = os.path.realpath(os.fsencode(folders[0])) if folders else b"/"
    while at != b"/":
        data = promises.read_ticket(home, at)
        if data:
            try:
                return Ticket(*marshal.loads(data))
            except (ValueError, TypeError, EOFError):
                return None  # another version's
        at = os.path.dirname(at)
    return None


class _Opened:
    """Opens files, and closes them at the end."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def __call__(self, path: str, flags: int) -> int:
        self._fds.append(os.open(path, flags))
        return self._fds[-1]

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
