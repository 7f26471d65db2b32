"""Merge two versions of a text that come from one base, line by line. Pure: bytes in, bytes out.

Outcomes are those of `git merge-file`: changes that lie apart are both taken, equal changes once, all else is a
conflict; conflicts are narrowed to the lines that differ, and joined again where fewer than four lines (or none
with a letter or digit) lie between. Where one side's change touches the other's without a line in between, that is a
conflict too, as in git: whether the two fit together is for a person to say.

Taking one change out of a file is a merge as well: base is the file as the change left it, one side is the file
as it is now, the other the file before the change. `hunks` and `revert_hunks` do it for single places.

    base    . . . . x x . . . . . . y y . . . .
    ours    . . . . A A . . . . . . B . . . . .       x→A is ours alone: taken
    theirs  . . . . x x . . . . . . C C . . . .       y→B against y→C: conflict
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reprieve.files.linediff import Change, changes, split_lines
from reprieve.model.value import Value

OURS, THEIRS, BOTH, CONFLICT = "ours", "theirs", "both", "conflict"

_JOIN = 3  # conflicts with at most so many lines between them are shown as one
_MARKER = 7


class NotText(ValueError):
    """A side holds a NUL byte: it is binary, and merging by lines would guess. Choose one side whole."""


class Region(Value):
    """Where the sides differ: whose change it is, and its lines (from, to) in ours and in theirs."""

    side: str  # OURS, THEIRS, BOTH (the same change) or CONFLICT
    ours: tuple[int, int]
    theirs: tuple[int, int]


class Merged(Value):
    """The merged text; with conflicts it holds markers."""

    data: bytes
    conflicts: int
    regions: tuple[Region, ...]


class Hunk(Value):
    """One place where `a` became `b`. Line numbers count from 0; the lines are with their ends."""

    a_start: int
    a_lines: tuple[bytes, ...]
    b_start: int
    b_lines: tuple[bytes, ...]


def is_text(data: bytes) -> bool:
    """True if lines mean something in it: no NUL anywhere (git looks at the first 8,000 bytes only)."""
    return b"\0" not in data


def merge3(base: bytes, ours: bytes, theirs: bytes, *, labels: tuple[bytes, bytes] = (b"ours", b"theirs")) -> Merged:
    """Merge two descendants of `base`. Raises NotText if one of the three is binary."""
    for side in (base, ours, theirs):
        if not is_text(side):
            raise NotText("binary content cannot be merged line by line")
    texts = _Texts(split_lines(base), split_lines(ours), split_lines(theirs))
    left, right = changes(texts.base, texts.ours), changes(texts.base, texts.theirs)
    spans = _join_near(texts.ours, _narrow(texts, _line_up(texts, left, right)))
    regions = tuple(Region(s.side, (s.o1, s.o2), (s.t1, s.t2)) for s in spans)
    return Merged(_written(texts, spans, labels), sum(s.side == CONFLICT for s in spans), regions)


def hunks(a: bytes, b: bytes, *, gap: int = 0) -> list[Hunk]:
    """The places where `b` differs from `a`, in order. Those with at most `gap` equal lines between them are one."""
    a_lines, b_lines = split_lines(a), split_lines(b)
    joined: list[Change] = []
    for a1, a2, b1, b2 in changes(a_lines, b_lines):
        if joined and a1 - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], a2, joined[-1][2], b2)
        else:
            joined.append((a1, a2, b1, b2))
    return [Hunk(a1, tuple(a_lines[a1:a2]), b1, tuple(b_lines[b1:b2])) for a1, a2, b1, b2 in joined]


def revert_hunks(b: bytes, found: Sequence[Hunk], picked: Collection[int]) -> bytes:
    """`b` with the picked ones (counted from 0) of `hunks(a, b)` taken back to `a`.

    All of them give `a`, none gives `b`. A last line without an end gets one if other lines now follow it.
    """
    lines = split_lines(b)
    parts: list[bytes] = []
    at = 0
    for number, hunk in enumerate(found):
        end = hunk.b_start + len(hunk.b_lines)
        if tuple(lines[hunk.b_start : end]) != hunk.b_lines:
            raise ValueError("the hunks are of another text")
        parts += lines[at : hunk.b_start]
        parts += hunk.a_lines if number in picked else hunk.b_lines
        at = end
    parts += lines[at:]
    for i in range(len(parts) - 1):
        if not parts[i].endswith(b"\n"):
            parts[i] += b"\n"
    return b"".join(parts)


class _Texts:
    def __init__(self, base: list[bytes], ours: list[bytes], theirs: list[bytes]) -> None:
        self.base, self.ours, self.theirs = base, ours, theirs


class _Span:
    """A region being built: the same stretch in ours (o1 to o2) and in theirs (t1 to t2)."""

    __slots__ = ("o1", "o2", "side", "t1", "t2")

    def __init__(self, side: str, o1: int, o2: int, t1: int, t2: int) -> None:
        self.side, self.o1, self.o2, self.t1, self.t2 = side, o1, o2, t1, t2


def _line_up(texts: _Texts, left: list[Change], right: list[Change]) -> list[_Span]:
    """Walk both lists of changes in base order; what overlaps or touches without being equal is a conflict.

    Outside its own changes a side runs parallel to base, at a distance that is known from its last change: that is
    how one side's change finds its place on the other side.
    """
    spans: list[_Span] = []
    l_at = r_at = 0
    while l_at < len(left) or r_at < len(right):
        ours = left[l_at] if l_at < len(left) else None
        theirs = right[r_at] if r_at < len(right) else None
        if theirs is None or (ours is not None and ours[1] < theirs[0]):
            assert ours is not None
            to_theirs = theirs[2] - theirs[0] if theirs else len(texts.theirs) - len(texts.base)
            _add(spans, _Span(OURS, ours[2], ours[3], ours[0] + to_theirs, ours[1] + to_theirs))
            l_at += 1
        elif ours is None or theirs[1] < ours[0]:
            to_ours = ours[2] - ours[0] if ours else len(texts.ours) - len(texts.base)
            _add(spans, _Span(THEIRS, theirs[0] + to_ours, theirs[1] + to_ours, theirs[2], theirs[3]))
            r_at += 1
        else:
            if not _is_same_change(texts, ours, theirs):
                start, end = min(ours[0], theirs[0]), max(ours[1], theirs[1])
                _add(
                    spans,
                    _Span(
                        CONFLICT,
                        ours[2] - (ours[0] - start),
                        ours[3] + (end - ours[1]),
                        theirs[2] - (theirs[0] - start),
                        theirs[3] + (end - theirs[1]),
                    ),
                )
            l_at, r_at = l_at + (ours[1] <= theirs[1]), r_at + (theirs[1] <= ours[1])
    return spans


def _is_same_change(texts: _Texts, ours: Change, theirs: Change) -> bool:
    return ours[:2] == theirs[:2] and texts.ours[ours[2] : ours[3]] == texts.theirs[theirs[2] : theirs[3]]


def _add(spans: list[_Span], new: _Span) -> None:
    """Append, or widen the last one if the new one reaches into it on either side."""
    if spans and (new.o1 <= spans[-1].o2 or new.t1 <= spans[-1].t2):
        last = spans[-1]
        last.o2, last.t2 = new.o2, new.t2
        if last.side != new.side:
            last.side = CONFLICT
    else:
        spans.append(new)


def _narrow(texts: _Texts, spans: list[_Span]) -> list[_Span]:
    """Cut conflicts down to the lines that differ between the two sides."""
    narrowed: list[_Span] = []
    for span in spans:
        if span.side != CONFLICT or span.o1 == span.o2 or span.t1 == span.t2:
            narrowed.append(span)
            continue
        parts = changes(texts.ours[span.o1 : span.o2], texts.theirs[span.t1 : span.t2])
        if parts:
            narrowed += [
                _Span(CONFLICT, span.o1 + o1, span.o1 + o2, span.t1 + t1, span.t1 + t2) for o1, o2, t1, t2 in parts
            ]
        else:
            span.side = BOTH
            narrowed.append(span)
    return narrowed


def _join_near(ours: list[bytes], spans: list[_Span]) -> list[_Span]:
    """Join conflicts that stand so close that a person reads them as one."""
    joined: list[_Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is not None and last.side == span.side == CONFLICT and _is_near(ours[last.o2 : span.o1]):
            last.o2, last.t2 = span.o2, span.t2
        else:
            joined.append(span)
    return joined


def _is_near(between: list[bytes]) -> bool:
    return len(between) <= _JOIN or not any(_has_alnum(line) for line in between)


def _has_alnum(line: bytes) -> bool:
    """ASCII letters and digits only, as git has it whatever the locale."""
    return any(48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 for c in line)


def _written(texts: _Texts, spans: list[_Span], labels: tuple[bytes, bytes]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for span in spans:
        if span.side == BOTH:
            continue  # in ours as it should be
        parts += texts.ours[at : span.o1]
        if span.side == CONFLICT:
            end = b"\r\n" if _is_crlf_here(texts, span) else b"\n"
            parts += [b"<" * _MARKER, b" " + labels[0] if labels[0] else b"", end]
            parts += _ended(texts.ours[span.o1 : span.o2], end)
            parts += [b"=" * _MARKER, end]
            parts += _ended(texts.theirs[span.t1 : span.t2], end)
            parts += [b">" * _MARKER, b" " + labels[1] if labels[1] else b"", end]
        elif span.side == OURS:
            parts += texts.ours[span.o1 : span.o2]
        else:
            parts += texts.theirs[span.t1 : span.t2]
        at = span.o2
    parts += texts.ours[at:]
    return b"".join(parts)


def _ended(lines: list[bytes], end: bytes) -> list[bytes]:
    """With an end on the last line: a marker follows it."""
    if lines and not lines[-1].endswith(b"\n"):
        return [*lines[:-1], lines[-1] + end]
    return lines


def _is_crlf_here(texts: _Texts, span: _Span) -> bool:
    """True if base begins in CRLF and neither side's line before the conflict says otherwise."""
    before = ((texts.ours, max(span.o1 - 1, 0)), (texts.theirs, max(span.t1 - 1, 0)))
    if any(_line_ends_in_crlf(lines, at) is False for lines, at in before):
        return False
    return _line_ends_in_crlf(texts.base, 0) is True


def _line_ends_in_crlf(lines: list[bytes], at: int) -> bool | None:
    """None: the text has no line end to go by."""
    if not lines:
        return None
    if not lines[at].endswith(b"\n"):
        if at == 0:
            return None
        at -= 1
    return lines[at].endswith(b"\r\n")
