"""The journal of a workspace, opened when somebody needs it, with the drivers that undo each kind of effect."""

from __future__ import annotations

import os

from reprieve.app import inside
from reprieve.effects.journal import Journal, Place
from reprieve.files.processes import born, is_alive, patron
from reprieve.model.actor import UNKNOWN
from reprieve.model.window import standing
from reprieve.store.effectlog import EffectLog, exists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from reprieve.app.workspace import Workspace
    from reprieve.effects.driver import Driver
    from reprieve.effects.memory import Memory
    from reprieve.rollback.effects import Cancels, Drivers


def has_journal(ws: Workspace) -> bool:
    """Whether any effect was ever recorded on this machine."""
    return exists(ws.home)


def open_journal(ws: Workspace, *, is_theirs: bool = False) -> Journal:
    """The journal; made if it is not there. The caller closes `journal.log`.

    `is_theirs`: what is begun is done by the process that called us (an agent), so that one's death makes it unknown.
    """
    from reprieve.store.home import open_home

    log = EffectLog(open_home(ws.home), reporter=ws.reporter)
    me = (patron() if is_theirs else 0) or os.getpid()
    return Journal(log, ws.id, clock=ws.clock, process=(me, born(me)), is_alive=is_alive)


def place(ws: Workspace, *, actor: str = "") -> Place:
    """Where on the timeline we are, and whose window is open."""
    head = ws.timeline.head()
    if head is None:
        head = ws.checkpoint("before the first effect").entry
    now = standing(head.data)
    innermost = [ids[0] for ids in now.lineages()]
    by_id = {window.id: window for window in now.open}
    mine = by_id.get(inside.current(ws.id))  # of several at once only who opened one can tell
    window = mine or (by_id[innermost[-1]] if innermost else None)
    run = os.environ.get("REPRIEVE_RUN", "")
    author = UNKNOWN if run and window is None else now.author()  # what a run left behind is no person
    return Place(
        head.seq,
        actor or (mine.actor if mine else author),
        window.step if window else "",
        window.id if window else "",
        run or (window.actor.partition("/")[0] if window else ""),
    )


def trees(ws: Workspace) -> list[str]:
    """Where an agent works: the folder, and what is tracked beside it."""
    from reprieve.app.annexes import tracked

    return [os.fsdecode(ws.root), *tracked(ws)]


OWN = frozenset(("sql", "objects", "command", "mcp", "memory", "http", "mail", "git"))  # kinds that are ours


def drivers(journal: Journal, memory: Memory | None = None, root: bytes = b"") -> Drivers:
    """What can undo, by kind of inverse. `memory`: what this process has changed in itself.

    `root`: of the workspace; with it other packages' drivers are found, too, but none that lies in there.
    """
    import time

    from reprieve.effects.command import CommandDriver
    from reprieve.effects.http import HttpDriver
    from reprieve.effects.mcp import McpDriver
    from reprieve.effects.memory import MemoryDriver
    from reprieve.effects.objects import ObjectsDriver
    from reprieve.effects.sql import SqlDriver
    from reprieve.policy.egress import address_for
    from reprieve.policy.redact import redact

    def egress(forward: str, url: str, address: str) -> str:
        return address_for(forward, url, forward_address=address)

    own: dict[str, Driver] = {
        "sql": SqlDriver(sign=journal.log.fingerprint, clean=redact),
        "objects": ObjectsDriver(sign=journal.log.fingerprint),
        "command": CommandDriver(sign=journal.log.fingerprint, clean=redact),
        "mcp": McpDriver(sign=journal.log.fingerprint, clean=redact),
        "memory": MemoryDriver(memory, is_alive=is_alive),
        "http": HttpDriver(egress, sign=journal.log.fingerprint, sleep=time.sleep, clock=time.time_ns),
    }
    if not root:
        return own
    from reprieve.app.adapters import WithAdapters

    return WithAdapters(own, root)


def cancels(ws: Workspace, journal: Journal) -> Cancels:
    """What cancels held effects, by kind."""
    from reprieve.app.mail import cancel_held

    return {"mail": cancel_held(ws, journal)}
