"""Promise the checkpoint before an agent's call instead of taking it, where the tree is as the timeline has it.

    a command in the helper's stead   leaves a *ticket*: what it knows of the session and the store, and
                                      by what it can be told that all this still holds
    the helper                        next call: everything holds, no file changed ─▶ the entry is made durable as a
                                      promise (`store.promises`), the agent has its answer
    whoever locks the workspace next  puts the entry on the timeline (`files.promised`)

What a ticket says must be exactly what the hook itself would find (`hooks`). Whatever is unusual has none, and every
doubt means that the event is handled in the ordinary way. docs/design/0012-promises.md says why each thing is compared.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import time

from reprieve.app import places
from reprieve.app.hook_folders import PROJECT, is_in, named_folders, node
from reprieve.app.hook_moment import opening, step_of
from reprieve.app.hook_words import reaches_out
from reprieve.app.recent import Recent, look_back
from reprieve.files import native, promised, told, tree
from reprieve.files.index import index_tag, load_index
from reprieve.files.processes import RUN, born, patron
from reprieve.model.actor import of_session
from reprieve.model.change import EXCLUDED
from reprieve.model.hookevent import BEFORE
from reprieve.model.talk import Talk
from reprieve.model.timeline import CHECKPOINT, Draft, TimelineEntry
from reprieve.model.value import Value
from reprieve.store import promises
from reprieve.store.chain import new_id
from reprieve.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reprieve.app.workspace import Workspace
    from reprieve.model.hookevent import HookEvent

_COUNTER = 24, 4  # where SQLite counts the commits of a database: offset and length in its file
_UNHEARD = ("REPRIEVE_HELPER", "REPRIEVE_HELPER_IDLE")
_HEARD = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", *PROJECT.values())

Node = tuple[int, int]
Stamp = tuple[int, ...]


class Session(Value):
    """Who will act, and where."""

    agent: str
    who: str
    variables: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]


class Ticket(Value):
    """What the next call of a session needs, and by what it is known that it still holds. Plain values: it travels."""

    version: str  # ours, that made it
    workspace: str
    root: bytes
    node: Node  # of the root
    home: str
    database: Node
    counter: bytes  # as long as it stays, nobody has written to the store
    variables: tuple[tuple[str, str], ...]
    folders: tuple[tuple[str, Node], ...]  # where the session works
    others: tuple[bytes | Node, ...]  # workspaces, by path and by what is there: one may lie inside of this
    settings: tuple[str, Stamp]  # the user's file
    index: str
    tag: bytes
    cross_mounts: bool
    agent: str
    who: str
    steps: tuple[str, ...]  # calls that are going on
    is_gated: bool  # every command line is judged, not only those that reach out
    talk: tuple[object, ...] | None  # the session's last moment, and the entry that has it
    said_by: tuple[object, ...] | None
    head: int

    @property
    def again(self) -> Session:
        """For the next ticket."""
        return Session(self.agent, self.who, self.variables, tuple(folder for folder, _ in self.folders))

    @property
    def recent(self) -> Recent:
        """As `look_back` found it: nothing that the agent must be told."""
        if self.talk is None or self.said_by is None:
            return Recent(head=self.head, known=self.head)
        talk, entry = Talk(*self.talk), TimelineEntry(*self.said_by)  # type: ignore[arg-type]
        return Recent(((entry, talk),), (), self.head, self.head)


def leave_ticket(ws: Workspace, at: Session) -> None:
    """Leave a ticket for what the session does next, if that can be an ordinary case, with the helper and as a file."""
    ticket = _ticket(ws, at)
    if ticket is None:
        return
    data = marshal.dumps(tuple(ticket))  # type: ignore[arg-type]
    told.leave_ticket(ws.root_fd, data)
    promises.save_ticket(ws.home, ws.root, data)


def _ticket(ws: Workspace, at: Session) -> Ticket | None:
    """None if something is unusual.

    Needs no lock: if anybody writes to the store while this reads, the counter is another one when it is used.
    """
    # Never closed: that would take SQLite's own locks on this file from this process, which ends soon.
    file = os.open(os.path.join(ws.home, "store.db"), os.O_RDONLY | os.O_CLOEXEC)
    st = os.fstat(file)
    counter = os.pread(file, _COUNTER[1], _COUNTER[0])
    from reprieve.files.worktree import linked_outside

    limits, capture = ws.capture.limits, ws.capture
    if not at.folders or ws.annexes or ws.lost or limits.skip or limits.only or linked_outside(ws.root):
        return None
    recent = look_back(ws.timeline, at.who)
    _, last, now = capture.author()
    head = ws.timeline.head()
    if recent.moves or last.open != now.open or head is None or ws.timeline.intent() or ws.store.blobs.damaged():
        return None
    tag = index_tag(head.hash, capture.limits_digest())
    index = load_index(capture.index_path, tag)
    if index is None or index.base is None or not index.is_complete or _has_gaps(index.base):
        return None
    promises.prepare(ws.home, ws.id)
    return Ticket(
        VERSION,
        ws.id,
        ws.root,
        node(ws.root),
        ws.home,
        (st.st_dev, st.st_ino),
        counter,
        at.variables,
        tuple((folder, node(folder)) for folder in at.folders),
        tuple(place for record in ws.store.workspaces() for place in (record.root, (record.dev, record.ino))),
        (places.user_config(), _stamp(places.user_config())),
        capture.index_path,
        tag,
        limits.cross_mounts,
        at.agent,
        at.who,
        tuple(window.step for window in last.open),
        ws.config.policy_mode == "autopilot",
        tuple(recent.talks[0][1]) if recent.talks else None,  # type: ignore[arg-type]
        tuple(recent.talks[0][0]) if recent.talks else None,  # type: ignore[arg-type]
        recent.head,
    )


def session_of(event: HookEvent, variables: Mapping[str, str]) -> Session:
    """Of the event that was handled last."""
    who = of_session(event.agent, event.session)
    return Session(event.agent, who, heard(variables), tuple(named_folders(event, variables)))


def heard(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that change what a hook writes down; whether there is a helper does not."""
    some = [pair for pair in variables.items() if pair[0] in _HEARD or pair[0].startswith("REPRIEVE_")]
    return tuple(sorted(pair for pair in some if pair[0] not in _UNHEARD))


def fits(ticket: Ticket, event: HookEvent, variables: Mapping[str, str]) -> bool:
    """Whether the event is a call as the ticket expects it, in the same place; looks at folders, not at the store."""
    if ticket.version != VERSION or event.kind != BEFORE or event.agent != ticket.agent:
        return False
    if not event.call_id or not event.tells_end:
        return False
    if event.parent is not None or event.is_background or of_session(event.agent, event.session) != ticket.who:
        return False
    if step_of(event) in ticket.steps or heard(variables) != ticket.variables or RUN in variables:
        return False
    if event.command and (ticket.is_gated or reaches_out(event.command)):
        return False
    folders = dict(ticket.folders)
    named = named_folders(event, variables)
    if not named or any(folder not in folders or node(folder) != folders[folder] for folder in named):
        return False
    if node(ticket.root) != ticket.node or _stamp(ticket.settings[0]) != ticket.settings[1]:
        return False
    return all(_is_inside(ticket, path) for path in event.paths)


def is_untouched(ticket: Ticket, database: int) -> bool:
    """Whether nobody has written to the store since, and the database open there is still its own."""
    if node(os.path.join(ticket.home, "store.db")) != ticket.database:
        return False
    return os.pread(database, _COUNTER[1], _COUNTER[0]) == ticket.counter


def promise(
    ticket: Ticket, event: HookEvent, *, can_note: bool, database: int, slot: int, is_unchanged: Callable[[], bool]
) -> bool:
    """Make the checkpoint before a call durable as a promise; False: it has to be taken in the ordinary way.

    `database` and `slot` are descriptors, of the store's database and of the file for the promise. `is_unchanged` is
    asked with the lock held: whether the tree is that of the ticket's index.
    """
    path = os.path.join(ticket.home, "locks", ticket.workspace)
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.fstat(slot), os.lstat(promises.path_of(ticket.home, ticket.workspace)))
        if not is_there or not promises.is_empty(slot) or not is_untouched(ticket, database) or not is_unchanged():
            return False
        return promises.write(slot, _text(ticket, event, can_note=can_note))
    except OSError:
        return False  # somebody else is at work there, or the disk fails: a command waits, and says it
    finally:
        os.close(lock)


def _text(ticket: Ticket, event: HookEvent, *, can_note: bool) -> str:
    """What the hook would have written down."""
    pid = patron()
    begun = opening(event, recent=ticket.recent, can_note=can_note, pid=pid)
    draft = Draft(CHECKPOINT, time.time_ns(), "", begun.label, begun.note, data=begun.data, id=new_id())
    window = begun.window.replace(id=new_id(), opened=draft.id, born=born(pid) if pid else 0)
    return promised.text_of(draft, window)


def _has_gaps(index: object) -> bool:
    rows = tree.numbers(native.rows_with(index, tree.GAP))  # type: ignore[arg-type]
    return any(tree.entry_at(index, row)[1].gap != EXCLUDED for row in rows)  # type: ignore[arg-type]


def _is_inside(ticket: Ticket, path: str) -> bool:
    """Whether it is plain that the file is in the workspace, and in none that lies inside of it."""
    try:
        named = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    at = os.path.dirname(named)
    if not os.path.isabs(named) or os.path.islink(named) or os.path.realpath(at) != at or not is_in(at, ticket.root):
        return False
    while at != ticket.root:
        if at in ticket.others or node(at) in ticket.others:
            return False
        at = os.path.dirname(at)
    return True


def _stamp(path: str) -> Stamp:
    try:
        st = os.stat(path)
    except OSError:
        return ()
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns
