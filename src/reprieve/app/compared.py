"""Compare the lines of many changes, lazily."""

from __future__ import annotations

from reprieve.app.lines import Lines, compare_change
from reprieve.app.render import change_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reprieve.app.workspace import Workspace
    from reprieve.model.change import Change


def compare_all(ws: Workspace, changes: Iterable[Change], *, b_is_live: bool) -> Iterator[tuple[Change, Lines]]:
    """Each change with its lines. The second side is read from the disk where it is the present."""
    for change in changes:
        path = change.path
        live = (lambda _entry, path=path: ws.current_bytes(path)) if b_is_live else ws.content
        yield change, compare_change(change, read_before=ws.content, read_after=live)


def changes_json(ws: Workspace, changes: Iterable[Change], *, b_is_live: bool) -> list[dict[str, object]]:
    """The changes in JSON, with their lines counted."""
    return [
        change_json(change, added=lines.added, removed=lines.removed, binary=lines.is_binary)
        for change, lines in compare_all(ws, changes, b_is_live=b_is_live)
    ]
