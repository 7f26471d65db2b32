"""Turn the source text of one shell word into the words that the shell would make of it. Pure.

Quotes, escapes, `$'…'`, braces, `~`, and variables whose value is known are resolved; what only a running shell
could know
(a substitution, an unknown variable) makes the word dynamic: its text is None and its `prefix` is what is certain.
Structure between words is `shell`'s.
"""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WORDS = 64  # of one brace expansion
_GLOB = "*?["
_SIMPLE_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


class Word(Value):
    """One argument. `text` is None where only a running shell knows it; then `prefix` is the part that is certain.

    `is_glob`: the text holds a pattern that the shell expands to names of files.
    """

    text: str | None
    prefix: str = ""
    is_glob: bool = False
    is_quoted: bool = False


DYNAMIC = Word(None)


def plain(text: str) -> Word:
    """A word that says what it means."""
    return Word(text, text)


class Scan(Value):
    """The words, and how many substitutions the text holds (to be checked against the tree)."""

    words: tuple[Word, ...]
    substitutions: int = 0


class _Part:
    """Characters with the same treatment: `text` None is unknown; `is_split` is subject to splitting and patterns."""

    __slots__ = ("is_literal", "is_split", "text")

    def __init__(self, text: str | None, *, is_split: bool, is_literal: bool = False) -> None:
        self.text, self.is_split, self.is_literal = text, is_split, is_literal


def expand(source: str, variables: Mapping[str, str | None], *, cwd: str | None = None) -> Scan:
    """The words that one shell word becomes. `variables`: values that are known; None means known to be unknown."""
    found: list[Word] = []
    count = 0
    sources = braces(source)
    if sources is None:
        return Scan((DYNAMIC,), _Scanner(source, variables, cwd).scan().count)
    for one in sources:
        scanner = _Scanner(one, variables, cwd).scan()
        count += scanner.count
        found += _words(scanner)
    return Scan(tuple(found), count if len(sources) == 1 else _Scanner(source, variables, cwd).scan().count)


def quoted(source: str, variables: Mapping[str, str | None]) -> str | None:
    """What stands between double quotes, or in a here-document, once expanded; None where that is not known."""
    scanner = _Scanner(source, variables, None)
    scanner.double(end="")
    parts = [part.text for part in scanner.parts]
    return None if any(part is None for part in parts) else "".join(part or "" for part in parts)


def _words(scanner: _Scanner) -> list[Word]:
    """Join the parts, splitting where the shell splits."""
    words: list[Word] = []
    text, prefix, is_glob, is_known, has_any, is_quoted = "", "", False, True, False, False

    def close() -> None:
        nonlocal text, prefix, is_glob, is_known, has_any, is_quoted
        if has_any:
            words.append(Word(text if is_known else None, text if is_known else prefix, is_glob, is_quoted))
        text, prefix, is_glob, is_known, has_any, is_quoted = "", "", False, True, False, False

    for part in scanner.parts:
        if part.text is None:
            if is_known:
                prefix = text
            is_known, has_any = False, True
            continue
        if not part.is_split:
            text, has_any, is_quoted = text + part.text, True, True
            continue
        if part.is_literal:
            text, has_any = text + part.text, True
            is_glob = is_glob or any(ch in _GLOB for ch in part.text)
            continue
        # the value of an unquoted variable: splits at blanks
        pieces = part.text.split()
        if part.text[:1].isspace() and has_any:
            close()
        for number, piece in enumerate(pieces):
            if number:
                close()
            text, has_any = text + piece, True
            is_glob = is_glob or any(ch in _GLOB for ch in piece)
        if pieces and part.text[-1:].isspace():
            close()
    close()
    return words


class _Scanner:
    def __init__(self, source: str, variables: Mapping[str, str | None], cwd: str | None) -> None:
        self.source, self.variables, self.cwd = source, variables, cwd
        self.at, self.count = 0, 0
        self.parts: list[_Part] = []

    def scan(self) -> _Scanner:
        source = self.source
        if source.startswith("~"):
            self._tilde()
        while self.at < len(source):
            ch = source[self.at]
            if ch == "'":
                end = source.find("'", self.at + 1)
                self._put(source[self.at + 1 : end] if end > 0 else None, is_split=False)
                self.at = end + 1 if end > 0 else len(source)
            elif ch == '"':
                self.at += 1
                self._put("", is_split=False)
                self.double(end='"')
            elif ch == "\\":
                if source[self.at + 1 : self.at + 2] != "\n":
                    self._put(source[self.at + 1 : self.at + 2], is_split=False)
                self.at += 2
            elif ch == "`":
                self._backtick(is_split=True)
            elif ch == "$":
                self._dollar(is_split=True)
            elif ch in "<>" and source[self.at + 1 : self.at + 2] == "(":
                self.count += 1
                self.at = _closing(source, self.at + 2, ")")
                self._put("/dev/fd/63", is_split=False)
            else:
                self._put(ch, is_split=True, is_literal=True)
                self.at += 1
        return self

    def double(self, *, end: str) -> None:
        """From after an opening double quote to `end`; "" is the end of the text."""
        source = self.source
        while self.at < len(source):
            ch = source[self.at]
            if end and ch == end:
                self.at += 1
                return
            if ch == "\\":
                after = source[self.at + 1 : self.at + 2]
                if after != "\n":
                    self._put(after if after in '$`"\\' and after else ch + after, is_split=False)
                self.at += 2
            elif ch == "`":
                self._backtick(is_split=False)
            elif ch == "$":
                self._dollar(is_split=False)
            else:
                self._put(ch, is_split=False)
                self.at += 1

    def _put(self, text: str | None, *, is_split: bool, is_literal: bool = False) -> None:
        last = self.parts[-1] if self.parts else None
        if (
            last is not None and text is not None and last.text is not None
            and last.is_split == is_split and last.is_literal == is_literal and (is_literal or not is_split)
        ):  # fmt: skip
            last.text += text
        else:
            self.parts.append(_Part(text, is_split=is_split, is_literal=is_literal))

    def _tilde(self) -> None:
        source = self.source
        end = next((n for n, ch in enumerate(source) if ch in "/'\"\\$`"), len(source))
        name = source[1:end]
        if end < len(source) and source[end] != "/":
            self._put(None, is_split=False)
        elif name == "":
            self._put(self.variables.get("HOME", "/~"), is_split=False)
        elif name == "+":
            self._put(self.cwd, is_split=False)
        elif name == "-":
            self._put(None, is_split=False)
        else:
            self._put(f"/~{name}", is_split=False)
        self.at = end

    def _backtick(self, *, is_split: bool) -> None:
        self.count += 1
        self.at += 1
        while self.at < len(self.source) and self.source[self.at] != "`":
            self.at += 2 if self.source[self.at] == "\\" else 1
        self.at += 1
        self._put(None, is_split=is_split)

    def _dollar(self, *, is_split: bool) -> None:
        source, start = self.source, self.at
        after = source[start + 1 : start + 2]
        if after == "(":
            is_sum = source.startswith("$((", start)
            self.at = _closing(source, start + 2, ")")
            if is_sum:
                inner = _Scanner(source[start + 3 : self.at - 2], self.variables, None)
                inner.double(end="")
                self.count += inner.count
            else:
                self.count += 1
            is_pwd = source[start + 2 : self.at - 1].strip() == "pwd"
            self._put(self.cwd if is_pwd else None, is_split=is_split)
        elif after == "{":
            self.at = _closing(source, start + 2, "}")
            self._braced(source[start + 2 : self.at - 1], is_split=is_split)
        elif after == "'" and is_split:
            self._ansi(start + 2)
        elif after == '"' and is_split:
            self.at = start + 2
            self._put("", is_split=False)
            self.double(end='"')
        elif after == "_" or (after.isascii() and after.isalpha()):
            end = start + 2
            while end < len(source) and (source[end] == "_" or (source[end].isascii() and source[end].isalnum())):
                end += 1
            self._value(source[start + 1 : end], is_split=is_split)
            self.at = end
        elif after and after in "@*#?-$!0123456789":
            self._put(None, is_split=is_split)
            self.at = start + 2
        else:
            self._put("$", is_split=False)
            self.at = start + 1

    def _braced(self, inner: str, *, is_split: bool) -> None:
        scanner = _Scanner(inner, self.variables, None)
        scanner.double(end="")
        # `${x@P}` runs what the value holds: a substitution that no parser sees
        self.count += scanner.count + (1 if inner.endswith("@P") else 0)
        if inner and (inner[0] == "_" or inner[0].isalpha()) and all(ch == "_" or ch.isalnum() for ch in inner):
            self._value(inner, is_split=is_split)
        else:
            self._put(None, is_split=is_split)

    def _value(self, name: str, *, is_split: bool) -> None:
        if name == "IFS" and "IFS" not in self.variables:
            self._put(" ", is_split=is_split)
            if is_split:  # it separates even where it stands alone
                self.parts.append(_Part(" ", is_split=True))
        elif name == "PWD" and "PWD" not in self.variables:
            self._put(self.cwd, is_split=is_split)
        else:
            self._put(self.variables.get(name, "/~" if name == "HOME" else None), is_split=is_split)

    def _ansi(self, at: int) -> None:
        source, out = self.source, ""
        while at < len(source) and source[at] != "'":
            if source[at] != "\\":
                out += source[at]
                at += 1
                continue
            ch = source[at + 1 : at + 2]
            at += 2
            if ch in _SIMPLE_ESCAPES and ch:
                out += _SIMPLE_ESCAPES[ch]
            elif ch == "x" or ch in ("u", "U"):
                digits = _run(source, at, "0123456789abcdefABCDEF", {"x": 2, "u": 4, "U": 8}[ch])
                out += _chr(digits, 16) if digits else "\\" + ch
                at += len(digits)
            elif ch and ch in "01234567":
                digits = _run(source, at - 1, "01234567", 3)
                out += _chr(digits, 8)
                at += len(digits) - 1
            elif ch == "c":
                out += chr(ord(source[at : at + 1] or "@") & 0x1F)
                at += 1
            else:
                out += "\\" + ch
        self._put(out, is_split=False)
        self.at = at + 1


def _chr(digits: str, base: int) -> str:
    code = int(digits, base)
    return chr(code) if code < 0x110000 else "\ufffd"


def _run(source: str, at: int, allowed: str, most: int) -> str:
    end = at
    while end < len(source) and end - at < most and source[end] in allowed:
        end += 1
    return source[at:end]


def _closing(source: str, at: int, closer: str) -> int:
    """The place after the `closer` that ends what began before `at`; quotes and nesting are skipped."""
    opener = "(" if closer == ")" else "{"
    depth = 1
    while at < len(source):
        ch = source[at]
        if ch == "\\":
            at += 2
            continue
        if ch == "'":
            end = source.find("'", at + 1)
            at = end + 1 if end > 0 else len(source)
            continue
        if ch == '"':
            at += 1
            while at < len(source) and source[at] != '"':
                if source[at] == "\\":
                    at += 2
                elif source.startswith("$(", at):
                    at = _closing(source, at + 2, ")")
                else:
                    at += 1
        elif ch == opener:
            depth += 1
        elif ch == closer:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(source)


def braces(source: str) -> list[str] | None:
    """The texts that `{a,b}` and `{1..3}` stand for, as the shell makes them before anything else; None: too many."""
    if "{" not in source:
        return [source]
    at = 0
    while at < len(source):
        ch = source[at]
        if ch == "\\":
            at += 2
        elif ch == "'" or ch == '"':
            end = at + 1
            while end < len(source) and source[end] != ch:
                end += 2 if ch == '"' and source[end] == "\\" else 1
            at = end + 1
        elif source.startswith("${", at):
            at = _closing(source, at + 2, "}")
        elif source.startswith("$(", at):
            at = _closing(source, at + 2, ")")
        elif ch == "{":
            end = _closing(source, at + 1, "}")
            options = _options(source[at + 1 : end - 1]) if source[end - 1 : end] == "}" else None
            if options is None:
                at += 1
                continue
            found: list[str] = []
            for option in options:
                more = braces(source[:at] + option + source[end:])
                if more is None or len(found) + len(more) > MAX_WORDS:
                    return None
                found += more
            return found
        else:
            at += 1
    return [source]


def _options(inner: str) -> list[str] | None:
    """What stands between the braces, or None if these are just braces."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(inner):
        ch = inner[at]
        if ch == "\\":
            at += 1
        elif ch in "'\"":
            end = inner.find(ch, at + 1)
            at = end if end > 0 else len(inner)
        elif ch == "{":
            depth += 1
        elif ch == "}":
            depth -= 1
        elif ch == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
        at += 1
    if parts:
        return [*parts, inner[start:]]
    first, dots, last = inner.partition("..")
    if dots and first.lstrip("-").isdigit() and last.lstrip("-").isdigit():
        low, high = int(first), int(last)
        step = 1 if high >= low else -1
        if abs(high - low) >= MAX_WORDS:
            return [first, last]
        return [str(n) for n in range(low, high + step, step)]
    if dots and len(first) == 1 and len(last) == 1 and first.isalpha() and last.isalpha():
        low, high = ord(first), ord(last)
        step = 1 if high >= low else -1
        return [chr(n) for n in range(low, high + step, step)]
    return None
