"""Effects of the program that uses us: changes of its own objects, and commits to its databases."""

from __future__ import annotations

import os
from contextlib import contextmanager

from reprieve.app import journals
from reprieve.app.effects import journal_of
from reprieve.effects import transaction as transactions
from reprieve.effects.memory import Kept, Memory
from reprieve.files import tree
from reprieve.files.databases import parts_of
from reprieve.files.processes import born
from reprieve.model.effect import DONE, IRREVERSIBLE, RESTORABLE, REVERSIBLE, UNKNOWN, EffectDraft
from reprieve.policy.redact import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from reprieve.app.annexes import Annex
    from reprieve.app.workspace import Workspace
    from reprieve.effects.transaction import Databases
    from reprieve.model.effect import Effect

_SQLITE = ("sqlite3", "_sqlite3")
WITH_FILES = "its rows come back with the files of the database"


def remember(
    ws: Workspace,
    target: str,
    before: object,
    after: object,
    *,
    set: Callable[[object], None],
    get: Callable[[], object] | None = None,
) -> Effect:
    """Note a change in this process's memory. The values are copied: what the program does to them later is its own."""
    from copy import deepcopy

    me = os.getpid()
    if ws.memory is None or ws.memory.process[0] != me:
        ws.memory = Memory((me, born(me)))
    kept = Kept(target, deepcopy(before), deepcopy(after), set, get)
    with journal_of(ws) as journal:
        draft = EffectDraft(
            "memory",
            REVERSIBLE,
            f"memory:{me}/{target}",
            f"change of {redact(target)} in memory",
            inverse=ws.memory.inverse(target),
        )
        effect = journal.record(draft, journals.place(ws))
    ws.memory.keep(effect.id, kept)
    return effect


@contextmanager
def transaction(ws: Workspace, connection: Any) -> Iterator[Any]:
    """A block in a database transaction. Its commit is an effect, at the place on the timeline where it happens.

    So is what was committed inside of it, by the step itself; and what is left to a transaction that somebody else
    opened and ends, as nobody can tell us how. Where all its databases are in the tree, their rows come back with their
    files.
    """
    mine: list[int] = []  # of ws.blocks; empty where a block of ours is around this one
    name, at_first = _name_of(connection), list[str]()

    def intend(what: str, databases: Databases) -> tuple[str, bool]:
        """(id of the effect, whether it is a matter of the files alone)."""
        # looked at again: the step may have attached or detached a file, or gone to another database
        files = [_files_of(raw) for _, raw in databases]
        names = [_name_of(each) for each, _ in databases if each is not connection] or [name]
        attached = [f"sqlite:{path}" for some in files for path in some[1:]]
        where = redact(" and ".join(dict.fromkeys((*names, *attached))))
        all_files = {path for some in (*files, at_first) for path in some}
        is_covered = bool(files) and all(files) and all(is_protected(ws, path) for path in all_files)
        with journal_of(ws) as journal, journal.log.transaction():
            cls = RESTORABLE if is_covered else IRREVERSIBLE
            effect = journal.begin(EffectDraft("transaction", cls, where, f"{what} {where}"), journals.place(ws))
            if is_covered:
                journal.cover(effect.id)
        return effect.id, is_covered

    def committing(is_last: bool, databases: Databases) -> Callable[[bool], None] | None:
        if not is_last and not mine:
            return None  # the block of ours around it tells
        said = "a transaction committed to" if is_last else "a step in a transaction that somebody else ends, in"
        effect, is_covered = intend(said, databases)

        def tell(is_done: bool) -> None:
            with journal_of(ws) as journal:
                if is_done and not is_last:
                    journal.finish(
                        effect, UNKNOWN, detail="the transaction was open before the step; who opened it ends it"
                    )
                elif is_done:
                    way = WITH_FILES if is_covered else "what is in a database is taken back there"
                    journal.finish(effect, DONE, detail=f"committed; {way}")
                else:
                    journal.finish(effect, UNKNOWN, detail="COMMIT failed; it may have happened")

        return tell

    def ended(why: str, databases: Databases) -> None:
        effect, _ = intend("a transaction that a step ended itself, in", databases)
        with journal_of(ws) as journal:
            journal.finish(effect, UNKNOWN, detail=f"{why}; what it wrote before may be committed")

    def begun(raw: Any) -> None:
        at_first[:] = _files_of(raw)
        if id(raw) not in ws.blocks:
            ws.blocks.add(id(raw))
            mine.append(id(raw))

    try:
        with transactions.transaction(connection, begun=begun, committing=committing, ended=ended):
            yield connection
    finally:
        ws.blocks.difference_update(mine)


def is_protected(ws: Workspace, path: str) -> bool:
    """Whether a database is in the tree or tracked, and no setting or gap keeps its files out of the checkpoints.

    Then they come back with all others; or a rollback names them with all others, as what was not protected.
    """
    real = os.path.realpath(path)
    return _holds(ws, real) or any(_holds(annex.ws, real, annex) for annex in ws.annexes)


def _holds(ws: Workspace, real: str, annex: Annex | None = None) -> bool:
    head = ws.timeline.head()  # of what is tracked since the last checkpoint there is none
    top = os.path.realpath(os.fsdecode(ws.root))
    if head is None or os.path.commonpath((top, real)) != top:
        return False
    inside = os.fsencode(os.path.relpath(real, top))
    known = ws.capture.tree_at(head.seq)
    places = (*parts_of(inside), *tree.ancestors(inside))
    if any((there := tree.lookup(known, place)) is not None and there.gap for place in places):
        return False
    excludes = ws.capture.limits.excludes
    if excludes is not None and not all(excludes.accepts(part, False) for part in parts_of(inside)):
        return False
    return annex is None or annex.selected_at(head)(inside)


def _files_of(raw: Any) -> list[str]:
    """The files that a connection of sqlite3 writes to, with those that are attached; none if one is not a file."""
    if type(raw).__module__.partition(".")[0] not in _SQLITE:
        return []
    try:
        cursor = raw.cursor()
    except raw.ProgrammingError:
        return []  # it was closed: nobody can tell any more
    cursor.row_factory = None  # whatever the program has rows look like
    try:
        found = [path for _, name, path in cursor.execute("PRAGMA database_list") if name != "temp"]
    finally:
        cursor.close()
    return found if all(found) else []


def _name_of(connection: Any) -> str:
    """What a person calls the database at the other end."""
    bound = getattr(connection, "bind", None) or connection  # an SQLAlchemy session knows its engine by that name
    url = getattr(getattr(bound, "engine", None), "url", None)
    if url is not None:
        return str(url.render_as_string(hide_password=True))
    info: Any = getattr(connection, "info", None)
    if hasattr(info, "dbname"):
        return f"postgresql://{info.host}:{info.port}/{info.dbname}"
    module = type(connection).__module__.partition(".")[0]
    if module in _SQLITE:
        return f"sqlite:{(_files_of(connection) or ['memory'])[0]}"
    return f"a {module} database"
