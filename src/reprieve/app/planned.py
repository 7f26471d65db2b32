"""Every way to move the world back, made as a plan first and carried out by its hash: two steps for callers that ask.

A plan is remembered as what was asked for. To carry it out it is made anew; if the world is no longer what it was, its
hash differs and nothing is touched.
"""

from __future__ import annotations

from reprieve.app import effects as world
from reprieve.app.paths import beneath_root
from reprieve.app.threads import open_threads, path_of
from reprieve.app.threads import roll_back as roll_thread_back
from reprieve.errors import BadRef, Conflict, Usage
from reprieve.model.plan import THREAD, Action, Plan, Report
from reprieve.rollback.effects import hash_of_plan
from reprieve.store.hashing import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from reprieve.app.workspace import Workspace

    Asked = Mapping[str, Any]

KINDS = ("rollback", "undo", "redo", "revert", "compensate", "thread_rollback")


def make(ws: Workspace, kind: str, asked: Asked) -> Plan:
    """The plan of what is asked for now; nothing is touched."""
    return _MOVES[kind](ws, asked, "")[0]


def carry_out(ws: Workspace, kind: str, asked: Asked, plan: Plan) -> Report:
    """Do what the plan says. Raises Conflict if that is no longer what would happen."""
    report = _MOVES[kind](ws, asked, plan.id)[1]
    assert report is not None
    return report


def inner_paths(ws: Workspace, given: Sequence[str]) -> tuple[bytes, ...]:
    """Paths that a caller names, relative to the root. Raises Usage for what is not beneath it."""
    for name in given:
        if "\0" in name or not name:
            raise Usage(f"'{name!a}' is no path")
    return tuple(beneath_root(ws.root, _text(ws.root), name) for name in given)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _rollback(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    return ws.rollback(
        asked.get("ref"),
        only=inner_paths(ws, asked.get("only", ())),
        everything=bool(asked.get("everything")),
        on_conflict=asked.get("on_conflict", "abort"),
        effects="no" if asked.get("files_only") else "undo",
        dry_run=not expect,
        expect=expect,
    )


def _undo(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    return ws.undo(
        asked.get("step"),
        tail=bool(asked.get("tail")),
        on_conflict=asked.get("on_conflict", "abort"),
        effects="undo",
        dry_run=not expect,
        expect=expect,
    )


def _redo(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    return ws.redo(dry_run=not expect, expect=expect)


def _revert(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    paths = inner_paths(ws, asked["paths"])
    hunks = tuple(asked.get("hunks", ()))
    return ws.revert(paths, asked.get("to"), hunks=hunks, dry_run=not expect, expect=expect)


def compensate(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    """Effects alone: the plan, and with its id in `expect` what became of them."""
    side = world.compensate(ws, asked.get("ref"), everything=bool(asked.get("everything")))
    if side is None:
        return _effects_plan(None, asked), Report("")
    with side:
        plan = _effects_plan(side, asked)
        if not expect:
            return plan, None
        _must_be(plan, expect)
        if asked.get("on_conflict", "abort") == "abort":
            side.refuse_conflicts()
        side.need_approval()
        side.carry_out()
        return plan, Report("", effects=tuple(side.outcomes))


def _effects_plan(side: world.Side | None, asked: Asked) -> Plan:
    hash, actions = (hash_of_plan(side.actions, side.journal, sha256).hex(), side.actions) if side else ("", ())
    id = sha256(f"compensate\0{hash}".encode()).hex()[:16]
    return Plan(id, "compensate", str(asked.get("ref") or "latest"), "", (), effects=actions)


def _thread(ws: Workspace, asked: Asked, expect: str) -> tuple[Plan, Report | None]:
    import os

    from reprieve.app.thread_views import find_state, rollback_command
    from reprieve.threads.moves import rollback
    from reprieve.threads.values import Types

    if not os.path.lexists(path_of(ws)):
        raise BadRef(f"there is no thread '{asked['thread']}'")
    threads, files = open_threads(ws, Types())
    try:
        thread, with_files = str(asked["thread"]), bool(asked.get("with_files"))
        id = find_state(threads, thread, str(asked.get("state") or "~1"))
        dry = rollback(threads, thread, id, dry_run=True)
        move = Action(THREAD, thread.encode("utf-8", "surrogateescape"), "rollback", None, None, reason=f"back to {id}")
        of_files = files.rollback(dry.files, dry_run=True)[0] if with_files and files and dry.files else None
        if with_files and of_files is None:
            raise Usage(f"no file checkpoint is known for {id}", hints=["roll back the state alone, without the files"])
        hashed = "\0".join(("thread", thread, id, dry.before, of_files.id if of_files else ""))
        plan = Plan(
            sha256(hashed.encode()).hex()[:16],
            "thread rollback",
            id,
            thread,
            (move, *(of_files.actions if of_files else ())),
            conflicts=of_files.conflicts if of_files else (),
            kept=of_files.kept if of_files else (),
            not_undone=of_files.not_undone if of_files else (),
            of=dry.before,
            effects=of_files.effects if of_files else (),
        )
        if not expect:
            return plan, None
        _must_be(plan, expect)
        moved, _, report = roll_thread_back(threads, files, thread, id, with_files=with_files, expect=dry.before)
        report = report or Report("")
        # the files and the thread are two ways back
        back = rollback_command(thread, moved.back) if moved.back else ""
        redo = " && ".join(filter(None, (report.redo, back)))
        return plan, report.replace(operation=report.operation or moved.id, redo=redo)
    finally:
        threads.store.close()


def _must_be(plan: Plan, expect: str) -> None:
    if plan.id != expect:
        raise Conflict(
            "what it is about changed since the plan was made; nothing was touched",
            hints=["look at the new plan and confirm again"],
        )


_MOVES = {
    "rollback": _rollback,
    "undo": _undo,
    "redo": _redo,
    "revert": _revert,
    "compensate": compensate,
    "thread_rollback": _thread,
}
