"""Say what a change did to a file's lines: reads both sides of a change and compares them, within limits."""

from __future__ import annotations

from reprieve.app.hunks import LARGEST, Comparison, compare
from reprieve.model.change import MODE
from reprieve.model.entry import FILE, SYMLINK, Entry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.model.change import Change

    Read = Callable[[Entry], bytes | None]  # the content of one side, None if it was not captured


class Lines(Value):
    """A change's comparison; None where there are no lines to compare, with the reason if that needs saying."""

    comparison: Comparison | None
    reason: str = ""

    @property
    def added(self) -> int:
        return self.comparison.added if self.comparison else 0

    @property
    def removed(self) -> int:
        return self.comparison.removed if self.comparison else 0

    @property
    def is_binary(self) -> bool:
        return self.comparison is not None and self.comparison.is_binary


def compare_change(change: Change, *, read_before: Read, read_after: Read) -> Lines:
    """Compare the two sides of a change. A link counts as a file that holds its target."""
    if change.change == MODE:
        return Lines(None)
    sides: list[bytes] = []
    is_content = False
    for entry, read in ((change.before, read_before), (change.after, read_after)):
        if entry is None or entry.kind not in (FILE, SYMLINK):
            sides.append(b"")
            continue
        is_content = True
        if entry.kind == SYMLINK:
            sides.append(entry.target)
            continue
        if entry.gap:
            return Lines(None, f"not compared: {entry.gap}")
        if entry.size > LARGEST:
            return Lines(None, f"not compared line by line: larger than {LARGEST >> 20} MiB")
        content = read(entry)
        if content is None:
            return Lines(None, "not compared: its content is not available")
        sides.append(content)
    return Lines(compare(*sides)) if is_content else Lines(None)
