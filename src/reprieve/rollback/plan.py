"""Decide what a return to an earlier state has to do.

Pure: reads the differences between then and now, yields actions. Carrying them out is `execute`'s.
"""

from __future__ import annotations

import os

from reprieve.files.databases import index_of
from reprieve.files.tree import ancestors
from reprieve.model.actor import PERSON, UNKNOWN
from reprieve.model.change import (
    EXCLUDED,
    EXCLUDED_BY_WHAT_GOES,
    UNREADABLE,
    WORKSPACE_FILE,
    Gap,
    classify,
    how_to_open,
)
from reprieve.model.change import MODE as MODE_CHANGE
from reprieve.model.entry import BLOCK, CHAR, DIR, SOCKET, SYMLINK, Entry
from reprieve.model.plan import DELETE, GIT, MKDIR, MODE, NO_SOCKET, WRITE, Action, Conflicted, Kept, Plan
from reprieve.model.plan import SYMLINK as LINK
from reprieve.rollback.groups import split_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reprieve.rollback.groups import NamesOf

    Selects = Callable[[bytes], bool]

_AT_A_TIME = 4096  # actions
_NOW = "not protected now: "
Difference = tuple[bytes, Entry | None, Entry | None]  # path, wanted, current


def make_plan(
    kind: str,
    *,
    target: str,
    label: str,
    differences: Iterable[Difference],
    selects: Selects | None = None,
    actors: Mapping[bytes, str] | None = None,
    conflicts: tuple[Conflicted, ...] = (),
    kept: tuple[Kept, ...] = (),
    revived: tuple[Kept, ...] = (),
    left: tuple[Gap, ...] = (),
    closed: frozenset[bytes] = frozenset(),
    merged: frozenset[bytes] = frozenset(),
    marked: Mapping[bytes, str] | None = None,
    parts: Mapping[bytes, bytes] | None = None,
    contents: tuple[tuple[bytes, bytes], ...] = (),
    is_root_user: bool = False,
    hash_of: Callable[[bytes], bytes],
    of: str = "",
    dependants: tuple[str, ...] = (),
    names_of: NamesOf = lambda numbers: (),
) -> Plan:
    """The plan that brings every selected path from `current` to `wanted`.

    `closed`: what nobody may look at now. It may not be among the differences, having been closed then as well.
    `parts`: paths that move with a database, which is theirs: they are written anew, also where nothing differs.
    `marked`: what gets conflict markers, and why.
    `revived`: what comes back, and is named as kept too, because it is not as it was at the target.
    `names_of`: every name that files of these hard-link groups have now.
    """
    ordered = sorted(differences, key=lambda d: d[0].replace(b"/", b"\0"))
    held = {path for path, wanted, current in ordered if _is_gap(wanted) or _is_gap(current)}
    wanted_at = {path: wanted for path, wanted, _ in ordered} if held else {}
    current_at = {path: current for path, _, current in ordered} if held else {}
    keeping, undone, actions = list(kept), list(left), []
    named = {gap.path for gap in left}
    kept_paths = {k.path for k in kept} | {c.path for c in conflicts}

    parts = parts or {}
    for path, wanted, current in ordered:
        if (wanted == current and path not in parts) or path in kept_paths:
            continue
        gap = _gap_at(path, wanted_at, current_at, held, closed)
        if selects is not None and not (selects(path) or _is_needed_parent(path, wanted, current, ordered, selects)):
            kept_paths.add(path)
        elif gap:
            if not (_is_gap(wanted) and _is_gap(current)) and path not in named:
                undone.append(Gap(path, gap))
            kept_paths.add(path)
        elif (reason := _cannot_make(wanted, is_root_user)) and current != wanted:
            undone.append(Gap(path, reason))
            kept_paths.add(path)
        else:
            action = _action(path, wanted, current, (actors or {}).get(path, "unknown"))
            if path in parts:
                action = _part(action, parts, ordered, actors or {})
            if path in merged:
                action = action.replace(verb="merge", reason="both changed it; only one side's part goes")
            if marked and path in marked:
                action = action.replace(reason=marked[path], is_marked=True)
            is_git = b".git/" in path and b".git" in path.split(b"/")[:-1]
            actions.append(action.replace(kind=GIT) if is_git else action)

    # a directory stays as long as something in it stays
    if kept_paths and not held:
        current_at = {path: current for path, _, current in ordered}
    staying = {above for path in kept_paths if current_at.get(path, path) is not None for above in ancestors(path)}
    final = []
    for action in actions:
        if action.before is not None and action.before.kind == DIR and action.path in staying:
            if action.after is None:
                keeping.append(Kept(action.path, "holds something that stays", action.actor))
                continue
            if action.after.kind != DIR:
                conflicts = (*conflicts, Conflicted(action.path, "holds something that stays", action.actor))
                continue
        final.append(action)
    if any(action.after is not None and action.after.link for action in final):
        final = split_groups(final, names_of, hash_of=hash_of)
    if moves_settings(final):
        undone = excluded_for_now(undone)
    coming = {action.path for action in final} if revived else frozenset()
    keeping += [item for item in revived if item.path in coming]
    lists = (tuple(final), conflicts, tuple(keeping), tuple(undone))
    plan = Plan("", kind, target, label, *lists, of, dependants, contents)
    return plan.replace(id=_essence(plan, hash_of).hex()[:16])


def moves_settings(actions: Iterable[Action]) -> bool:
    """Whether an agent's excludes go with the move: it may have excluded what it did."""
    return any(action.path == WORKSPACE_FILE and action.actor not in (PERSON, UNKNOWN) for action in actions)


def excluded_for_now(undone: Iterable[Gap]) -> list[Gap]:
    """Gaps of a move that takes the excludes back: what they hide has to be looked at once more."""
    reason = f"{_NOW}{EXCLUDED_BY_WHAT_GOES}"
    return [gap.replace(reason=reason) if gap.reason == _NOW + EXCLUDED else gap for gap in undone]


def _essence(plan: Plan, hash_of: Callable[[bytes], bytes]) -> bytes:
    """The hash of everything that approval is bound to; of hashes of its parts, so that it is never whole in memory."""
    hashes = [hash_of(b"\0".join((plan.kind.encode(), plan.target.encode(), plan.of.encode())))]
    for start in range(0, len(plan.actions), _AT_A_TIME):
        parts: list[bytes] = []
        for action in plan.actions[start : start + _AT_A_TIME]:
            if action.is_index:
                continue  # a look at the database is enough to change it
            parts += (action.path, action.verb.encode(), _image(action.before), _image(action.after))
        hashes.append(hash_of(b"\0".join(parts)))
    parts = [b"conflicts", *(c.path for c in plan.conflicts), b"kept", *(k.path for k in plan.kept)]
    return hash_of(b"".join((*hashes, hash_of(b"\0".join(parts)))))


def _image(entry: Entry | None) -> bytes:
    if entry is None:
        return b"-"
    return b"%s %o %d.%d " % (entry.kind, entry.mode, entry.mtime_s, entry.mtime_ns) + entry.content + entry.target


def _action(path: bytes, wanted: Entry | None, current: Entry | None, actor: str) -> Action:
    if wanted is None:
        return Action(DELETE, path, "delete", current, None, actor, "was not there")
    if current is None:
        return Action(_kind(wanted), path, "recreate", None, wanted, actor, "was deleted")
    if wanted.kind != current.kind:
        return Action(_kind(wanted), path, "replace", current, wanted, actor, "is of another type now")
    word = classify(wanted, current)
    if word == MODE_CHANGE:
        return Action(MODE, path, "chmod", current, wanted, actor, "mode, owner or attributes changed")
    if not word:
        return Action(MODE, path, "set times", current, wanted, actor, "times changed")
    if wanted.same_bytes_key == current.same_bytes_key:
        return Action(WRITE, path, "relink", current, wanted, actor, "hard link changed")
    return Action(_kind(wanted), path, "restore", current, wanted, actor, "was changed")


def _part(
    action: Action, parts: Mapping[bytes, bytes], ordered: list[Difference], actors: Mapping[bytes, str]
) -> Action:
    """The same as a part of its database; it may have to move although nobody changed it."""
    database = parts[action.path]
    actor = action.actor
    if action.path not in actors:
        others = (path for path, wanted, current in ordered if parts.get(path) == database and wanted != current)
        actor = next((actors[path] for path in others if path in actors), actor)
    action = action.replace(database=database, actor=actor)
    if action.path == index_of(database):
        return action.replace(is_index=True, reason="is made again when the database is opened")
    if action.kind == MODE:
        return action.replace(kind=WRITE, verb="restore", reason="is one with its log")
    return action


def _kind(entry: Entry) -> str:
    return MKDIR if entry.kind == DIR else LINK if entry.kind == SYMLINK else WRITE


def _is_gap(entry: Entry | None) -> bool:
    return entry is not None and bool(entry.gap)


def _gap_at(
    path: bytes,
    wanted_at: Mapping[bytes, Entry | None],
    current_at: Mapping[bytes, Entry | None],
    held: set[bytes],
    closed: frozenset[bytes],
) -> str:
    """Why this path is not ours to change: it, or a directory above it, was not protected then or is not now."""
    if not held and not closed:
        return ""
    for at in (path, *ancestors(path)):
        if at in held:
            wanted, current = wanted_at.get(at), current_at.get(at)
            then = wanted is not None and wanted.gap
            reason = (wanted.gap if wanted is not None and then else "") or (current.gap if current is not None else "")
            return f"not protected then: {reason}" if then else not_now(at, reason)
        if at in closed:
            return _NOW + UNREADABLE  # opening it may not help: it may have been closed then, too
    return ""


def not_now(path: bytes, reason: str) -> str:
    """Why what is at or below a gap stays as it is, and what a person can do about it."""
    if reason != UNREADABLE:
        return _NOW + reason
    return f"{_NOW}{reason}; to take it back: {how_to_open(path)}, then run the same command again"


def _is_needed_parent(
    path: bytes, wanted: Entry | None, current: Entry | None, ordered: list[Difference], selects: Selects
) -> bool:
    """A directory that must come back because something selected inside it does."""
    if wanted is None or wanted.kind != DIR or (current is not None and current.kind == DIR):
        return False
    return any(p.startswith(path + b"/") and w is not None and selects(p) for p, w, _ in ordered)


def _cannot_make(wanted: Entry | None, is_root_user: bool) -> str:
    if wanted is None:
        return ""
    if wanted.kind == SOCKET:
        return NO_SOCKET
    if wanted.kind in (CHAR, BLOCK) and not is_root_user:
        return "a device can only be recreated by root"
    return ""


def shown(path: bytes) -> str:
    """A path for people; the root is `.`."""
    return os.fsdecode(path) or "."
