"""Let a person choose the places of one file that are brought back, one by one."""

from __future__ import annotations

import sys

from reprieve.app.hunks import compare
from reprieve.cli import humane
from reprieve.errors import Refused, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from reprieve.app.hunks import Hunk
    from reprieve.app.workspace import Workspace
    from reprieve.cli.terminal import Terminal

_STYLES = {"+": "green", "-": "red"}
_KEYS = "y: bring this place back, n: leave it, a: this and all that follow, d: none of the rest, q: stop"


def pick(ws: Workspace, paths: Sequence[bytes], to: str | None, out: Terminal) -> tuple[int, ...]:
    """The numbers of the chosen places. Raises Refused when nobody can be asked, or nothing was chosen."""
    if not out.is_interactive:
        raise Usage("--pick needs a terminal", hints=["name the places by number: --hunk N"])
    if len(paths) != 1:
        raise Usage("--pick works on one file at a time")
    change = next((c for c in ws.diff(to, None, paths).changes if c.path == paths[0]), None)
    old = ws.content(change.before) if change is not None else None
    new = ws.current_bytes(paths[0])
    if old is None or new is None:
        raise Usage(f"'{humane.path(paths[0])}' has no places to choose from")
    found = list(compare(old, new).hunks())
    chosen: list[int] = []
    for number, hunk in enumerate(found, 1):
        _show(hunk, number, len(found), out)
        answer = _ask(out)
        if answer in ("a", "d", "q"):
            chosen += range(number, len(found) + 1) if answer == "a" else ()
            chosen = [] if answer == "q" else chosen
            break
        if answer == "y":
            chosen.append(number)
    if not chosen:
        raise Refused("nothing was chosen; nothing was touched")
    return tuple(chosen)


def _show(hunk: Hunk, number: int, total: int, out: Terminal) -> None:
    place = f"-{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count}"
    out.line(out.styled(f"@@ {place} @@ place {number} of {total}", "cyan"))
    for mark, line in hunk.lines:
        text = humane.safe(line.rstrip(b"\n").decode("utf-8", "surrogateescape"), keep="\t")
        out.line(out.styled(f"{mark}{text}", *([_STYLES[mark]] if mark in _STYLES else [])))


def _ask(out: Terminal) -> str:
    while True:
        out.raw(b"Bring this place back [y,n,a,d,q,?]? ")
        out.flush()
        line = sys.stdin.readline()
        if not line:
            return "q"
        answer = line.strip().lower()[:1]
        if answer in ("y", "n", "a", "d", "q"):
            return answer
        out.line(_KEYS)
