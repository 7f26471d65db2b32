"""Effects of the program that uses us: changes of its own objects, and commits to its databases."""

from __future__ import annotations

import os

from reprieve.app import journals
from reprieve.app.effects import journal_of
from reprieve.effects import transaction as transactions
from reprieve.effects.memory import Kept, Memory
from reprieve.files.processes import born
from reprieve.model.effect import DONE, IRREVERSIBLE, REVERSIBLE, UNKNOWN, EffectDraft
from reprieve.policy.redact import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from reprieve.app.workspace import Workspace
    from reprieve.model.effect import Effect


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


def transaction(ws: Workspace, connection: Any) -> AbstractContextManager[Any]:
    """A block in a database transaction. Its commit is an effect, at the place on the timeline where it happens.

    So is what was committed inside of it, by the step itself.
    """
    name = redact(_name_of(connection))

    def committing() -> Callable[[bool], None]:
        with journal_of(ws) as journal:
            draft = EffectDraft("transaction", IRREVERSIBLE, name, f"a transaction committed to {name}")
            effect = journal.begin(draft, journals.place(ws))

        def tell(is_done: bool) -> None:
            with journal_of(ws) as journal:
                if is_done:
                    journal.finish(effect.id, DONE, detail="committed; what is in a database is taken back there")
                else:
                    journal.finish(effect.id, UNKNOWN, detail="COMMIT failed; it may have happened")

        return tell

    def ended(why: str) -> None:
        with journal_of(ws) as journal:
            draft = EffectDraft("transaction", IRREVERSIBLE, name, f"a transaction that a step ended itself, in {name}")
            effect = journal.begin(draft, journals.place(ws))
            journal.finish(effect.id, UNKNOWN, detail=f"{why}; what it wrote before may be committed")

    return transactions.transaction(connection, committing=committing, ended=ended)


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
    if module in ("sqlite3", "_sqlite3"):
        for _, name, path in connection.execute("PRAGMA database_list"):
            if name == "main":
                return f"sqlite:{path or 'memory'}"
    return f"a {module} database"
