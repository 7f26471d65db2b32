"""Compare two versions of a file line by line. Pure: bytes in, hunks out; drawing them is the front end's."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.files.linediff import changes, split_lines
from reprieve.model.value import Value

LARGEST = 8 << 20  # bytes of one side; more is neither read for comparing nor shown line by line
_PROBE = 8192  # git looks at as much for a NUL
CONTEXT = 3  # unchanged lines shown around a change; places with at most twice as many between them are one hunk

Block = tuple[str, int, int, int, int]  # equal, replace, delete or insert; old from and to, new from and to

KEPT, ADDED, REMOVED = " ", "+", "-"


class Hunk(Value):
    """Neighbouring changed lines with their surroundings. Line numbers start at 1 (0: the side is empty)."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[tuple[str, bytes], ...]  # (KEPT, ADDED or REMOVED, the line with its end)


class Comparison(Value):
    """What differs between two contents."""

    is_binary: bool
    added: int
    removed: int
    blocks: tuple[Block, ...] = ()
    old: tuple[bytes, ...] = ()
    new: tuple[bytes, ...] = ()

    def hunks(self, context: int = CONTEXT) -> Iterator[Hunk]:
        """The differences, each with that many unchanged lines around it."""
        group: list[Block] = []
        for block in self.blocks:
            tag, a1, a2, b1, b2 = block
            if tag != "equal":
                group.append(block)
                continue
            if group and any(tag != "equal" for tag, *_ in group):
                if a2 - a1 <= 2 * context:
                    group.append(block)
                    continue
                yield self._hunk([*group, (tag, a1, min(a2, a1 + context), b1, min(b2, b1 + context))])
            group = [(tag, max(a1, a2 - context), a2, max(b1, b2 - context), b2)]
        if any(tag != "equal" for tag, *_ in group):
            tag, a1, a2, b1, b2 = group[-1]
            if tag == "equal":
                group[-1] = (tag, a1, min(a2, a1 + context), b1, min(b2, b1 + context))
            yield self._hunk(group)

    def _hunk(self, group: list[Block]) -> Hunk:
        old_from, new_from = group[0][1], group[0][3]
        old_to, new_to = group[-1][2], group[-1][4]
        lines: list[tuple[str, bytes]] = []
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                lines += [(KEPT, line) for line in self.old[a1:a2]]
            else:
                lines += [(REMOVED, line) for line in self.old[a1:a2]]
                lines += [(ADDED, line) for line in self.new[b1:b2]]
        old_count, new_count = old_to - old_from, new_to - new_from
        return Hunk(
            old_from + 1 if old_count else old_from,
            old_count,
            new_from + 1 if new_count else new_from,
            new_count,
            tuple(lines),
        )


def compare(before: bytes, after: bytes) -> Comparison:
    """Compare two contents. Binary content is only told to be so."""
    if b"\0" in before[:_PROBE] or b"\0" in after[:_PROBE]:
        return Comparison(True, 0, 0)
    old, new = split_lines(before), split_lines(after)
    blocks = _blocks(old, new)
    added = sum(b2 - b1 for tag, _, _, b1, b2 in blocks if tag != "equal")
    removed = sum(a2 - a1 for tag, a1, a2, _, _ in blocks if tag != "equal")
    return Comparison(False, added, removed, tuple(blocks), tuple(old), tuple(new))


def _blocks(old: list[bytes], new: list[bytes]) -> list[Block]:
    """All of both sides, in pieces that are equal or differ."""
    blocks: list[Block] = []
    a_at = b_at = 0
    for a1, a2, b1, b2 in changes(old, new):
        if a1 > a_at:
            blocks.append(("equal", a_at, a1, b_at, b1))
        blocks.append(("replace" if a1 < a2 and b1 < b2 else "delete" if a1 < a2 else "insert", a1, a2, b1, b2))
        a_at, b_at = a2, b2
    if a_at < len(old):
        blocks.append(("equal", a_at, len(old), b_at, len(new)))
    return blocks
