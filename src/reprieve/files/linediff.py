"""Find which lines differ between two texts. Pure: lines in, ranges out.

Myers' O(ND) algorithm in linear space, searched from both ends (E. Myers, "An O(ND) Difference Algorithm and Its
Variations", 1986), with the habits that git's and GNU's diffs share, so that a merge built on it takes the same lines
for changed as `git merge-file` does:

    1. lines that the other side does not have, or has too often to mean something, are set aside first;
    2. a search that costs too much settles for the furthest point it reached (`_Search`);
    3. a run of changed lines that could stand a few lines higher or lower ends up next to the other side's
       change if there is one, else as low as possible (`_settle`).

Not difflib: it is quadratic on repetitive files, needs an "autojunk" guess to bear long ones, costs 11 ms to import.
"""

from __future__ import annotations

from collections.abc import Sequence

Change = tuple[int, int, int, int]  # lines a1 to a2 of the one became lines b1 to b2 of the other

_CHEAP = 256  # edits that are searched exactly, at least
_SNAKE = 20  # equal lines in a row that make a path worth following
_WINDOW = 100  # lines looked at around one that occurs too often
_TOO_OFTEN = 1024


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their ends. Only LF ends a line (bytes.splitlines also splits at CR)."""
    lines = data.split(b"\n")
    last = lines.pop()
    whole = [line + b"\n" for line in lines]
    if last:
        whole.append(last)
    return whole


def changes(a: Sequence[bytes], b: Sequence[bytes]) -> list[Change]:
    """What turned `a` into `b`, in order; lines between two changes are equal."""
    numbers: dict[bytes, int] = {}
    a_ids = [numbers.setdefault(line, len(numbers)) for line in a]
    b_ids = [numbers.setdefault(line, len(numbers)) for line in b]
    a_gone, b_new = _marks(a_ids, b_ids, len(numbers))
    _settle(a_ids, a_gone, b_new)
    _settle(b_ids, b_new, a_gone)
    return _ranges(a_gone, b_new, len(a), len(b))


def _ranges(a_gone: bytearray, b_new: bytearray, a_len: int, b_len: int) -> list[Change]:
    found: list[Change] = []
    i = j = 0
    while True:
        # both go over the same number of unchanged lines, so the nearer mark is where they stop
        i_next, j_next = a_gone.find(1, i), b_new.find(1, j)
        skip = min(i_next - i if i_next >= 0 else a_len, j_next - j if j_next >= 0 else b_len)
        if i_next < 0 and j_next < 0:
            return found
        i, j = i + skip, j + skip
        i_end, j_end = a_gone.find(0, i), b_new.find(0, j)
        found.append((i, i_end, j, j_end))
        i, j = i_end, j_end


def _marks(a: list[int], b: list[int], kinds: int) -> tuple[bytearray, bytearray]:
    """Which lines of each side are changed: 1 per line, and a 0 behind the last that ends every run."""
    a_marks, b_marks = bytearray(len(a) + 1), bytearray(len(b) + 1)
    head, limit = 0, min(len(a), len(b))
    while head < limit and a[head] == b[head]:
        head += 1
    tail, limit = 0, limit - head
    while tail < limit and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a_rows = _worth_matching(a, b, head, len(a) - tail, kinds, a_marks)
    b_rows = _worth_matching(b, a, head, len(b) - tail, kinds, b_marks)
    search = _Search([a[i] for i in a_rows], [b[j] for j in b_rows])
    search.run()
    for i in search.a_changed:
        a_marks[a_rows[i]] = 1
    for j in search.b_changed:
        b_marks[b_rows[j]] = 1
    return a_marks, b_marks


def _worth_matching(
    lines: list[int], others: list[int], start: int, end: int, kinds: int, marks: bytearray
) -> list[int]:
    """Rows in start..end that the search should look at; the rest is marked as changed here."""
    counts = [0] * kinds
    for line in others:
        counts[line] += 1
    limit = min(_rough_root(len(lines)), _TOO_OFTEN)
    rank = bytearray(len(lines))  # 0: not on the other side, 1: worth matching, 2: there very often
    for i in range(start, end):
        count = counts[lines[i]]
        rank[i] = 0 if not count else 2 if count >= limit else 1
    rows = []
    for i in range(start, end):
        if rank[i] == 1 or (rank[i] == 2 and not _is_noise(rank, i, start, end - 1)):
            rows.append(i)
        else:
            marks[i] = 1
    return rows


def _is_noise(rank: bytearray, at: int, first: int, last: int) -> bool:
    """True for a frequent line amid lines without a match: a blank line in a new function says nothing."""
    start = rank.rfind(1, max(first, at - _WINDOW), at) + 1 or max(first, at - _WINDOW)
    before = rank.count(0, start, at)
    if not before:
        return False
    end = rank.find(1, at + 1, min(last, at + _WINDOW) + 1)
    end = min(last, at + _WINDOW) + 1 if end < 0 else end
    after = rank.count(0, at + 1, end)
    if not after:
        return False
    missing = before + after
    frequent = end - start - missing + 1  # the line itself counts for either direction
    return frequent * 4 < frequent + missing


def _rough_root(number: int) -> int:
    """A power of two near the square root."""
    root = 1
    while number > 0:
        root *= 2
        number >>= 2
    return root


class _Search:
    """The search for a shortest edit, box by box: split a box where paths from both corners meet, go on with the parts.

    A diagonal is d = i - j. `_ahead[d]` is the furthest i on d that some path from the near corner reached with the
    edits so far; `_back[d]` the same from the far corner. Indices are shifted by `_shift`: none is negative.
    """

    def __init__(self, a: list[int], b: list[int]) -> None:
        self._a, self._b = a, b
        self.a_changed: list[int] = []
        self.b_changed: list[int] = []
        self._shift = len(b) + 1
        diagonals = len(a) + len(b) + 3
        self._ahead = [0] * (diagonals + 1)
        self._back = [0] * (diagonals + 1)
        self._cost_limit = max(_rough_root(diagonals), _CHEAP)

    def run(self) -> None:
        a, b = self._a, self._b
        boxes = [(0, len(a), 0, len(b), False)]
        while boxes:
            a1, a2, b1, b2, is_exact = boxes.pop()
            while a1 < a2 and b1 < b2 and a[a1] == b[b1]:
                a1 += 1
                b1 += 1
            while a1 < a2 and b1 < b2 and a[a2 - 1] == b[b2 - 1]:
                a2 -= 1
                b2 -= 1
            if a1 == a2:
                self.b_changed.extend(range(b1, b2))
            elif b1 == b2:
                self.a_changed.extend(range(a1, a2))
            else:
                i, j, low_exact, high_exact = self._split(a1, a2, b1, b2, is_exact)
                boxes.append((a1, i, b1, j, low_exact))
                boxes.append((i, a2, j, b2, high_exact))

    def _split(self, a1: int, a2: int, b1: int, b2: int, is_exact: bool) -> tuple[int, int, bool, bool]:
        """A point on a good path through the box, and whether the parts before and after it deserve an exact search."""
        a, b, shift = self._a, self._b, self._shift
        ahead, back = self._ahead, self._back
        low, high = a1 - b2 + shift, a2 - b1 + shift  # diagonals of the box
        f_min = f_max = a1 - b1 + shift
        r_min = r_max = a2 - b2 + shift
        is_odd = (f_min - r_min) & 1
        ahead[f_min] = a1
        back[r_min] = a2
        far = len(a) + len(b) + 3
        cost = 0
        while True:
            cost += 1
            has_snake = False
            if f_min > low:
                f_min -= 1
                ahead[f_min - 1] = -1
            else:
                f_min += 1
            if f_max < high:
                f_max += 1
                ahead[f_max + 1] = -1
            else:
                f_max -= 1
            above = ahead[f_max + 1]
            for d in range(f_max, f_min - 1, -2):
                below = ahead[d - 1]
                i = above if above > below else below + 1
                above = below
                j = i - d + shift
                if i < a2 and j < b2 and a[i] == b[j]:
                    start = i
                    i += 1
                    j += 1
                    while i < a2 and j < b2 and a[i] == b[j]:
                        i += 1
                        j += 1
                    if i - start > _SNAKE:
                        has_snake = True
                ahead[d] = i
                if is_odd and r_min <= d <= r_max and back[d] <= i:
                    return i, j, True, True
            if r_min > low:
                r_min -= 1
                back[r_min - 1] = far
            else:
                r_min += 1
            if r_max < high:
                r_max += 1
                back[r_max + 1] = far
            else:
                r_max -= 1
            above = back[r_max + 1]
            for d in range(r_max, r_min - 1, -2):
                below = back[d - 1]
                i = below if below < above else above - 1
                above = below
                j = i - d + shift
                if i > a1 and j > b1 and a[i - 1] == b[j - 1]:
                    start = i
                    i -= 1
                    j -= 1
                    while i > a1 and j > b1 and a[i - 1] == b[j - 1]:
                        i -= 1
                        j -= 1
                    if start - i > _SNAKE:
                        has_snake = True
                back[d] = i
                if not is_odd and f_min <= d <= f_max and i <= ahead[d]:
                    return i, j, True, True
            if is_exact:
                continue
            if has_snake and cost > _CHEAP:
                point = self._promising(a1, a2, b1, b2, cost, range(f_max, f_min - 1, -2), range(r_max, r_min - 1, -2))
                if point:
                    return point
            if cost >= self._cost_limit:
                return self._furthest(a1, a2, b1, b2, range(f_max, f_min - 1, -2), range(r_max, r_min - 1, -2))

    def _promising(
        self, a1: int, a2: int, b1: int, b2: int, cost: int, forward: range, backward: range
    ) -> tuple[int, int, bool, bool] | None:
        """The end of a long run of equal lines that lies far along, for its cost, and near the middle diagonal."""
        a, b, shift = self._a, self._b, self._shift
        best, point = 4 * cost, None
        middle = a1 - b1 + shift
        for d in forward:
            i = self._ahead[d]
            j = i - d + shift
            gain = i - a1 + j - b1 - abs(d - middle)
            inside = a1 + _SNAKE <= i < a2 and b1 + _SNAKE <= j < b2
            if gain > best and inside and a[i - _SNAKE : i] == b[j - _SNAKE : j]:
                best, point = gain, (i, j, True, False)
        if point:
            return point
        middle = a2 - b2 + shift
        for d in backward:
            i = self._back[d]
            j = i - d + shift
            gain = a2 - i + b2 - j - abs(d - middle)
            inside = a1 < i <= a2 - _SNAKE and b1 < j <= b2 - _SNAKE
            if gain > best and inside and a[i : i + _SNAKE] == b[j : j + _SNAKE]:
                best, point = gain, (i, j, False, True)
        return point

    def _furthest(
        self, a1: int, a2: int, b1: int, b2: int, forward: range, backward: range
    ) -> tuple[int, int, bool, bool]:
        """The point furthest from its corner, of both searches."""
        shift = self._shift
        best, best_i = -1, -1
        for d in forward:
            i = min(self._ahead[d], a2)
            if i - d + shift > b2:
                i = b2 + d - shift
            if 2 * i - d + shift > best:
                best, best_i = 2 * i - d + shift, i
        least, least_i = a2 + b2 + 1, a2
        for d in backward:
            i = max(self._back[d], a1)
            if i - d + shift < b1:
                i = b1 + d - shift
            if 2 * i - d + shift < least:
                least, least_i = 2 * i - d + shift, i
        if a2 + b2 - least < best - (a1 + b1):
            return best_i, best - best_i, True, False
        return least_i, least - least_i, False, True


def _settle(lines: list[int], marks: bytearray, other: bytearray) -> None:
    """Give each run of changed lines its place among the equally good ones.

    Unchanged lines pair up with those of the other side, so the gaps between them do too; a run that slides over a
    line moves on by one gap. `gap` is the start of the other side's run (empty or not) that belongs to ours.
    """
    count, at, gap = len(lines), 0, 0
    while True:
        start = at
        end = marks.find(0, at)
        if end > start:
            start, end, gap = _slide(lines, marks, other, start, end, gap)
        if end >= count:
            return
        at = end + 1
        gap = other.find(0, gap) + 1


def _slide(
    lines: list[int], marks: bytearray, other: bytearray, start: int, end: int, gap: int
) -> tuple[int, int, int]:
    count = len(lines)
    size = 0
    while size != end - start:  # a run may meet another on its way, and then has new places to go
        size = end - start
        while start > 0 and lines[start - 1] == lines[end - 1]:
            start -= 1
            end -= 1
            marks[start], marks[end] = 1, 0
            while start > 0 and marks[start - 1]:
                start -= 1
            gap = _previous_gap(other, gap)
        highest = end
        beside = end if other[gap] else -1
        while end < count and lines[start] == lines[end]:
            marks[start], marks[end] = 0, 1
            start += 1
            end = marks.find(0, end)
            gap = other.find(0, gap) + 1
            if other[gap]:
                beside = end
    if end != highest and beside >= 0:
        while not other[gap]:
            start -= 1
            end -= 1
            marks[start], marks[end] = 1, 0
            while start > 0 and marks[start - 1]:
                start -= 1
            gap = _previous_gap(other, gap)
    return start, end, gap


def _previous_gap(other: bytearray, gap: int) -> int:
    gap -= 1  # over the unchanged line
    while gap > 0 and other[gap - 1]:
        gap -= 1
    return gap
