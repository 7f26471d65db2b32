"""List changed paths, one line each."""

from __future__ import annotations

from reprieve.app.patch import KINDS
from reprieve.cli import humane
from reprieve.model.actor import UNKNOWN, said
from reprieve.model.change import CREATED, DELETED, MODE, TYPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.cli.terminal import Terminal
    from reprieve.model.change import Change

_STYLES = {CREATED: "green", DELETED: "red"}
ON_A_TERMINAL = 200  # lines; what scrolls away is not read


def show_changes(out: Terminal, changes: Sequence[Change], *, none: str, limit: int = ON_A_TERMINAL) -> None:
    """The changes and their number; `none` is said when there are none."""
    if not changes:
        out.line(none)
        return
    shown = changes[:limit] if limit and out.is_terminal else changes
    for change in shown:
        word = out.styled(f"{change.change:9}", _STYLES.get(change.change, "yellow"))
        by = f"  by {humane.safe(said(change.actor))}" if change.actor not in ("", UNKNOWN) else ""
        out.line(f"  {word} {humane.path(change.path)}{_remark(change)}{by}")
    if len(shown) < len(changes):
        out.line(f"  … and {len(changes) - len(shown):,} more; all of them: reprieve diff --stat")
    out.line(tally(changes))


def tally(changes: Sequence[Change]) -> str:
    """3 paths changed: 1 created, 2 modified"""
    counts: dict[str, int] = {}
    for change in changes:
        counts[change.change] = counts.get(change.change, 0) + 1
    words = {MODE: "with another mode", TYPE: "of another type"}
    parts = ", ".join(f"{number:,} {words.get(kind, kind)}" for kind, number in counts.items())
    return f"{humane.count(len(changes), 'path')} changed: {parts}"


def _remark(change: Change) -> str:
    before, after = change.before, change.after
    if change.change == TYPE and before is not None and after is not None:
        return f"  ({KINDS.get(before.kind, '?')}, now {KINDS.get(after.kind, '?')})"
    if change.change == MODE and before is not None and after is not None and before.mode != after.mode:
        return f"  ({before.mode:04o}, now {after.mode:04o})"
    return ""
