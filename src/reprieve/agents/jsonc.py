"""JSON with comments as text: find values, insert and remove items, leave every other byte alone.

Pure. The parser accepts what editors call JSONC (comments, trailing commas, a byte order mark) and remembers where each
thing is; edits are made on the text at those places. Deciding what to insert is `hookfile`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from reprieve.model.value import Value

_SPACE = " \t\r\n"
_SKIP = re.compile(r"[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/", re.S)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_MAX_DEPTH = 200


class NotJson(ValueError):
    """The text is not JSON, not even with comments; the message says where."""


class Item:
    """One element of an array, or one member of an object (then with its key)."""

    __slots__ = ("comma", "key", "node", "start")

    def __init__(self, key: str | None, start: int, node: Node) -> None:
        self.key = key
        self.start = start  # of the key for a member
        self.node = node
        self.comma = -1  # where the comma after it is

    @property
    def end(self) -> int:
        return self.node.end


class Node:
    """A value and where it is: `text[start:end]`. An opaque one was read whole: `items` is empty, `whole` its value."""

    __slots__ = ("end", "is_opaque", "items", "kind", "start", "whole")

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind  # "{", "[" or "s"
        self.start = start
        self.end = start
        self.items: list[Item] = []
        self.is_opaque = False
        self.whole: object = None

    def get(self, key: str) -> Node | None:
        """The value of a member; the last one if the key is repeated, as every parser does."""
        for item in reversed(self.items):
            if item.key == key:
                return item.node
        return None


class Doc(Value):
    """A parsed text."""

    text: str
    root: Node
    line_comments: frozenset[int]  # where each `//` comment ends

    def value(self, node: Node | None = None) -> object:
        """The Python value of a node (the whole document by default)."""
        node = node or self.root
        if node.is_opaque:
            return node.whole
        if node.kind == "{":
            return {item.key: self.value(item.node) for item in node.items}
        if node.kind == "[":
            return [self.value(item.node) for item in node.items]
        return json.loads(self.text[node.start : node.end])


def parse(text: str, *, inside: str | None = None) -> Doc:
    """Read a whole text. Raises NotJson.

    `inside`: only this member of the document will be edited. The others are then read whole by the C decoder where
    they are plain JSON, a hundred times faster: settings of many megabytes exist.
    """
    parser = _Parser(text, inside)
    start = 1 if text.startswith("\ufeff") else 0
    root, at = parser.value(parser.skip(start), 0)
    at = parser.skip(at)
    if at != len(text):
        raise parser.wrong("something follows the end", at)
    return Doc(text=text, root=root, line_comments=frozenset(parser.line_comments))


class _Parser:
    def __init__(self, text: str, inside: str | None) -> None:
        self.text = text
        self.inside = inside
        self.line_comments: list[int] = []
        self.decoder = json.JSONDecoder(parse_constant=_refuse)

    def wrong(self, what: str, at: int) -> NotJson:
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return NotJson(f"line {line}, column {column}: {what}")

    def skip(self, at: int) -> int:
        while match := _SKIP.match(self.text, at):
            if self.text.startswith("//", at):
                self.line_comments.append(match.end())
            at = match.end()
        return at

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        if depth > _MAX_DEPTH:
            raise self.wrong("nested too deeply", at)
        first = self.text[at : at + 1]
        if first in ("{", "["):
            return self.container(first, at, depth)
        node = Node("s", at)
        match = (_STRING if first == '"' else _SCALAR).match(self.text, at)
        if match is None:
            raise self.wrong("a value is missing here" if at < len(self.text) else "the text ends too early", at)
        if first == '"':
            self.string(at, match.end())
        node.end = match.end()
        return node, node.end

    def whole(self, at: int) -> tuple[Node, int] | None:
        """A value by the C decoder; None if it has comments or the like in it."""
        if self.text[at : at + 1] not in ("{", "["):
            return None
        try:
            value, end = self.decoder.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return None
        node = Node(self.text[at], at)
        node.end, node.is_opaque, node.whole = end, True, value
        return node, end

    def string(self, start: int, end: int) -> str:
        try:
            value = json.loads(self.text[start:end])
        except ValueError as error:
            raise self.wrong("not a string", start) from error
        assert isinstance(value, str)
        return value

    def container(self, opener: str, at: int, depth: int) -> tuple[Node, int]:
        node = Node(opener, at)
        closer = "}" if opener == "{" else "]"
        at = self.skip(at + 1)
        while not self.text.startswith(closer, at):
            if node.items and node.items[-1].comma < 0:
                raise self.wrong(f"',' or '{closer}' is missing here", at)
            start, key = at, None
            if opener == "{":
                match = _STRING.match(self.text, at)
                if match is None:
                    raise self.wrong("a name in double quotes is missing here", at)
                key = self.string(at, match.end())
                at = self.skip(match.end())
                if not self.text.startswith(":", at):
                    raise self.wrong("':' is missing here", at)
                at = self.skip(at + 1)
            is_aside = self.inside is not None and depth == 0 and key != self.inside
            value, at = (self.whole(at) if is_aside else None) or self.value(at, depth + 1)
            item = Item(key, start, value)
            node.items.append(item)
            at = self.skip(at)
            if self.text.startswith(",", at):
                item.comma = at
                at = self.skip(at + 1)
        node.end = at + 1
        return node, node.end


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


Edit = tuple[int, int, str]  # replace text[start:end]


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Make edits that do not overlap."""
    out = []
    at = 0
    for start, end, new in sorted(edits):
        out += [text[at:start], new]
        at = end
    out.append(text[at:])
    return "".join(out)


def insert(doc: Doc, node: Node, values: Sequence[tuple[str | None, object]]) -> list[Edit]:
    """Add (key, value) pairs, or (None, value) elements, at the end of a container, in the style found there."""
    text, closer = doc.text, node.end - 1
    style = Style.of(doc)
    # After the comments that follow the last item, so that a comment stays next to what it is about.
    at = len(text[:closer].rstrip(_SPACE))
    last = node.items[-1] if node.items else None
    if last is None:
        is_open = style.is_open or "\n" in text[node.start : closer]
        indent = _indent_at(text, node.start) + style.unit
    else:
        is_open = "\n" in text[node.start : node.items[0].start] or "\n" in text[last.end : closer]
        own = _own_indent(text, node.items[0].start)
        indent = _indent_at(text, node.start) + style.unit if own is None else own
    gap = style.eol + indent if is_open else ("" if style.is_compact else " ")
    lead = gap if is_open or last else ""
    pieces = [style.render(key, value, indent if is_open else None) for key, value in values]
    new = lead + f",{gap}".join(pieces)
    if last is None:
        if is_open and "\n" not in text[at:closer]:
            new += style.eol + _indent_at(text, node.start)
        return [(at, at, new)]
    if last.comma >= 0:
        return [(at, at, new + ",")]
    if at == last.end:
        return [(at, at, "," + new)]
    return [(last.end, last.end, ","), (at, at, new)]


def remove(doc: Doc, node: Node, indexes: Collection[int]) -> list[Edit]:
    """Take items out, each with its comma and the white space before it; comments stay."""
    text, edits = doc.text, []
    kept_before: Item | None = None
    for index, item in enumerate(node.items):
        if index not in indexes:
            kept_before = item
            continue
        start = len(text[: item.start].rstrip(_SPACE))
        if start in doc.line_comments and text[item.end : node.end].lstrip(" \t,")[:1] not in ("\r", "\n"):
            # What follows on this line would become part of the comment: keep the line's end.
            start = item.start
        edits.append((start, item.end, ""))
        if item.comma >= 0:
            edits.append((item.comma, item.comma + 1, ""))
    is_last_gone = node.items and len(node.items) - 1 in indexes and node.items[-1].comma < 0
    if is_last_gone and kept_before is not None:
        edits.append((kept_before.comma, kept_before.comma + 1, ""))
    return edits


def replace(doc: Doc, node: Node, value: object) -> list[Edit]:
    """Put another value in the place of one."""
    style = Style.of(doc)
    is_open = "\n" in doc.text[node.start : node.end]
    return [(node.start, node.end, style.render(None, value, _indent_at(doc.text, node.start) if is_open else None))]


class Style(Value):
    """How a text is laid out."""

    unit: str
    eol: str
    is_open: bool  # one item per line
    is_compact: bool  # no blanks at all

    @classmethod
    def of(cls, doc: Doc) -> Style:
        text, root = doc.text, doc.root
        body = text[root.start : root.end]
        unit = "  "
        if root.items:
            own = _own_indent(text, root.items[0].start)
            unit = own.removeprefix(_indent_at(text, root.start)) or unit if own else unit
        is_open = "\n" in body or not root.items
        return cls(
            unit=unit,
            eol="\r\n" if "\r\n" in text else "\n",
            is_open=is_open,
            is_compact=not is_open and '": ' not in body and '":' in body,
        )

    def render(self, key: str | None, value: object, indent: str | None) -> str:
        """JSON text of an item; `indent` is that of its own line, None for all on one line."""
        if indent is None:
            separators = (",", ":") if self.is_compact else (", ", ": ")
            body = json.dumps(value, ensure_ascii=False, separators=separators)
        else:
            body = json.dumps(value, ensure_ascii=False, indent=self.unit).replace("\n", self.eol + indent)
        colon = ":" if indent is None and self.is_compact else ": "
        return body if key is None else f"{json.dumps(key, ensure_ascii=False)}{colon}{body}"


def _indent_at(text: str, at: int) -> str:
    """White space at the start of the line that `at` is in."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_indent(text: str, at: int) -> str | None:
    """The same, if `at` is the first thing on its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip(" \t") else None
