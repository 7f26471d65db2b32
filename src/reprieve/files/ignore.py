"""Excludes: which paths a user has chosen not to protect, in gitignore's language, decided as git decides.

Patterns and paths are bytes to git, so they are here: `?` is one byte, names need not be UTF-8. The last pattern that
matches a name wins; what lies in an excluded directory is excluded, and no negation brings it back.

Not pathspec: its regular expressions match a directory's whole content, so `["D", "!A"]` lets A/D in, which git
keeps out, and it does not know `[[:alpha:]]`, escapes in brackets or `a**b`. It also takes 22 ms to import; here
names, `*.suffix` and plain paths, which is nearly all that people write, need no regular expression (`re` is 8 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern

_SPECIAL = b"*?[\\"
_CACHED_DIRECTORIES = 200_000
_CACHED_LENGTH = 4096  # each prefix of a path is a key: a path of 20,000 levels would take 400 MB


class Excludes:
    """The user's patterns. `accepts` answers whether a path is protected."""

    def __init__(self, patterns: Iterable[str | bytes]) -> None:
        self._lines = tuple(p.encode("utf-8", "surrogateescape") if isinstance(p, str) else p for p in patterns)
        rules = [rule for line in self._lines for rule in _parse(line)]
        self._names: dict[bytes, list[tuple[int, _Rule]]] = {}  # rules for exactly one name, by that name
        self._others: list[tuple[int, _Rule]] = []  # all others, last first
        for at, rule in enumerate(rules):
            if rule.is_name:
                self._names.setdefault(rule.literal, []).append((at, rule))
            else:
                self._others.insert(0, (at, rule))
        self._directories: dict[bytes, bool] = {b"": True}

    @property
    def is_empty(self) -> bool:
        """True if nothing is excluded."""
        return not self._names and not self._others

    @property
    def digest(self) -> bytes:
        """16 bytes that differ when the patterns differ; zeros when there are none."""
        if self.is_empty:
            return bytes(16)
        from reprieve.files import native

        return native.sha256(b"\n".join(self._lines))[:16]

    def accepts(self, path: bytes, is_dir: bool) -> bool:
        """True if the path (relative to the root) is protected; its parents are looked at as well."""
        parent, slash, name = path.rpartition(b"/")
        if slash:
            accepted = self._directories.get(parent)
            if not (self._accepts_directory(parent) if accepted is None else accepted):
                return False
        return not self._excludes(path, name, is_dir)

    def _accepts_directory(self, path: bytes) -> bool:
        """As `accepts` for a directory, remembered. Goes up to the nearest known ancestor, then down again."""
        known = self._directories
        if len(known) > _CACHED_DIRECTORIES:
            known.clear()
            known[b""] = True
        end = len(path)
        while path[:end] not in known:
            end = max(path.rfind(b"/", 0, end), 0)
        accepted = known[path[:end]]
        while end < len(path):
            start = end + 1 if end else 0
            end = path.find(b"/", start)
            end = len(path) if end < 0 else end
            accepted = accepted and not self._excludes(path[:end], path[start:end], True)
            if end <= _CACHED_LENGTH:
                known[path[:end]] = accepted
        return accepted

    def _excludes(self, path: bytes, name: bytes, is_dir: bool) -> bool:
        """The last rule that matches this path itself, parents aside."""
        best, is_excluded = -1, False
        for at, rule in self._names.get(name, ()):
            if is_dir or not rule.needs_dir:
                best, is_excluded = at, not rule.is_negated
        for at, rule in self._others:
            if at < best:
                break
            if (is_dir or not rule.needs_dir) and rule.matches(path, name):
                return not rule.is_negated
        return is_excluded


class _Rule:
    """One pattern. `literal` is its part before the first wildcard, `rest` what follows."""

    def __init__(self, pattern: bytes, *, is_negated: bool, needs_dir: bool) -> None:
        self.is_negated = is_negated
        self.needs_dir = needs_dir
        self._is_anywhere = b"/" not in pattern
        if pattern[:1] == b"/":
            pattern = pattern[1:]
        plain = 0
        while plain < len(pattern) and pattern[plain] not in _SPECIAL:
            plain += 1
        self.literal, self._rest = pattern[:plain], pattern[plain:]
        self.is_name = self._is_anywhere and not self._rest
        self._suffix = b""
        if self._is_anywhere and pattern[:1] == b"*" and not any(c in _SPECIAL for c in pattern[1:]):
            self._suffix = pattern[1:]
        self._compiled: Pattern[bytes] | None = None

    def matches(self, path: bytes, name: bytes) -> bool:
        subject = name if self._is_anywhere else path
        if self._suffix:
            return subject.endswith(self._suffix)
        if not subject.startswith(self.literal):
            return False
        if not self._rest:
            return len(subject) == len(self.literal)
        if self._compiled is None:
            import re

            # git too cuts the literal part off first, so that `**/` right after it counts as if it stood at the start
            self._compiled = re.compile(_regex(self._rest, is_path=not self._is_anywhere), re.DOTALL)
        return self._compiled.fullmatch(subject, len(self.literal)) is not None


def _parse(line: bytes) -> list[_Rule]:
    """The rule on one line of a gitignore file; none for blank lines and comments."""
    if line.startswith(b"#"):
        return []
    pattern = _trimmed(line.removesuffix(b"\r"))
    is_negated = pattern.startswith(b"!")
    if is_negated:
        pattern = pattern[1:]
    needs_dir = pattern.endswith(b"/")
    if needs_dir:
        pattern = pattern[:-1]
    return [_Rule(pattern, is_negated=is_negated, needs_dir=needs_dir)] if pattern else []


def _trimmed(line: bytes) -> bytes:
    """Without trailing spaces, save those behind a backslash."""
    end = len(line.rstrip(b" "))
    slashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if slashes % 2 and end < len(line) else line[:end]


_NEVER = b"(?!)"
_CLASSES: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda c: chr(c).isalnum(),
    b"alpha": lambda c: chr(c).isalpha(),
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127,
    b"digit": lambda c: c in b"0123456789",
    b"graph": lambda c: 32 < c < 127,
    b"lower": lambda c: chr(c).islower(),
    b"print": lambda c: 32 <= c < 127,
    b"punct": lambda c: 32 < c < 127 and not chr(c).isalnum(),
    b"space": lambda c: c in b" \t\n\v\f\r",
    b"upper": lambda c: chr(c).isupper(),
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}


def _regex(pattern: bytes, *, is_path: bool) -> bytes:
    """The pattern as a regular expression over bytes, for fullmatch; one that never matches if it is malformed."""
    one = rb"[^/]" if is_path else rb"."
    parts = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            start = at
            while pattern[at : at + 1] == b"*":
                at += 1
            follows = pattern[at : at + 1]
            is_whole = at - start > 1 and (start == 0 or pattern[start - 1 : start] == b"/")
            if is_whole and follows == b"/":
                parts.append(rb"(?:.*/)?")
                at += 1
            elif is_whole and (not follows or pattern[at : at + 2] == b"\\/"):
                parts.append(rb".*")
            else:
                parts.append(one + b"*")
        elif char == b"?":
            parts.append(one)
            at += 1
        elif char == b"[":
            members, at = _bracket(pattern, at + 1)
            members -= frozenset(b"/") if is_path else frozenset()
            if at < 0:
                return _NEVER
            parts.append(b"[" + b"".join(b"\\x%02x" % c for c in sorted(members)) + b"]" if members else _NEVER)
        else:
            if char == b"\\":
                at += 1
                if at == len(pattern):
                    return _NEVER
            parts.append(b"\\x%02x" % pattern[at])
            at += 1
    return b"".join(parts)


def _bracket(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes that `[...]` stands for, and the index after it; -1 if it never ends or names no known class."""
    broken = (frozenset[int](), -1)
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    members: set[int] = set()
    previous = 0  # the byte that a range may begin with
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        char = pattern[at : at + 1]
        if char == b"-" and previous and pattern[at + 1 : at + 2] not in (b"", b"]"):
            at += 2 if pattern[at + 1 : at + 2] == b"\\" else 1
            if at >= len(pattern):
                return broken
            members.update(range(previous, pattern[at] + 1))
            previous = 0
        elif char == b"[" and pattern[at + 1 : at + 2] == b":":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                return broken
            if end > at + 2 and pattern[end - 1 : end] == b":":
                is_member = _CLASSES.get(pattern[at + 2 : end - 1])
                if is_member is None:
                    return broken
                members.update(c for c in range(1, 128) if is_member(c))
                at, previous = end, 0
            else:
                members.add(ord("["))
                previous = ord("[")
        else:
            at += char == b"\\"
            if at >= len(pattern):
                return broken
            members.add(pattern[at])
            previous = pattern[at]
        at += 1
        if at >= len(pattern):
            return broken
    return (frozenset(range(1, 256)) - members if is_negated else frozenset(members)), at + 1
