"""Draw changes as a diff that people and tools read: git's extended format, so that `git apply` takes it too."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.app import words
from reprieve.app.hunks import ADDED, REMOVED, Hunk
from reprieve.app.lines import Lines
from reprieve.model.change import MODE, MODIFIED, TYPE, Change
from reprieve.model.entry import BLOCK, CHAR, DIR, FIFO, FILE, SOCKET, SYMLINK, Entry

KINDS = {
    FILE: "file",
    DIR: "directory",
    SYMLINK: "symlink",
    FIFO: "FIFO",
    SOCKET: "socket",
    CHAR: "character device",
    BLOCK: "block device",
}
Line = tuple[bytes, str]  # what to write, without its end, and the style
_GRAPH = 40  # columns of + and - in --stat


def diff_lines(change: Change, lines: Lines) -> Iterator[Line]:
    """The lines that show one change, as bytes: contents are the user's and not ours to recode."""
    if change.change == TYPE:
        # As git shows it: one thing goes, another comes
        yield _title(change), "bold"
        yield _remark(f"{_kind(change.before)} became {_kind(change.after)}"), ""
    before, after = change.before, change.after
    if not _has_lines(before) and not _has_lines(after):
        if change.change != TYPE:
            yield _title(change), "bold"
            yield _remark(_special(change)), ""
        return
    if change.change != TYPE:
        yield _title(change), "bold"
    yield from ((_remark(text), "bold") for text in _modes(before, after))
    if lines.reason:
        yield _remark(_uncompared(change, lines)), ""
    elif lines.is_binary:
        # git reads no header without such a line, and would take the next file's for this one's
        yield _remark(f"index {_short(before)}..{_short(after)}"), ""
        yield b"Binary files %b and %b differ" % _names(change), ""
        yield _remark(f"Size: {_sizes(before, after).strip(' ()')}"), ""
    elif lines.comparison is not None and (lines.added or lines.removed):
        old, new = _names(change)
        yield b"--- " + old, "bold"
        yield b"+++ " + new, "bold"
        for hunk in lines.comparison.hunks():
            yield from _hunk_lines(hunk)


def _hunk_lines(hunk: Hunk) -> Iterator[Line]:
    old = _range(hunk.old_start, hunk.old_count)
    new = _range(hunk.new_start, hunk.new_count)
    yield f"@@ -{old} +{new} @@".encode(), "cyan"
    for tag, line in hunk.lines:
        style = {ADDED: "green", REMOVED: "red"}.get(tag, "")
        yield tag.encode() + line.removesuffix(b"\n"), style
        if not line.endswith(b"\n"):
            yield b"\\ No newline at end of file", ""


def _range(start: int, count: int) -> str:
    return f"{start}" if count == 1 else f"{start},{count}"


def _title(change: Change) -> bytes:
    return b"diff --git " + _quoted(b"a/" + change.path) + b" " + _quoted(b"b/" + change.path)


def _names(change: Change) -> tuple[bytes, bytes]:
    """What a patch calls the two sides."""
    old = _quoted(b"a/" + change.path) if _has_lines(change.before) else b"/dev/null"
    new = _quoted(b"b/" + change.path) if _has_lines(change.after) else b"/dev/null"
    return old, new


def _short(entry: Entry | None) -> str:
    return entry.content.hex()[:10] if entry is not None and entry.content else "0" * 10


def _remark(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _has_lines(entry: Entry | None) -> bool:
    return entry is not None and entry.kind in (FILE, SYMLINK)


def _git_mode(entry: Entry) -> str:
    return "120000" if entry.kind == SYMLINK else f"100{entry.mode & 0o777:03o}"


def _modes(before: Entry | None, after: Entry | None) -> list[str]:
    if before is None or not _has_lines(before):
        return [f"new file mode {_git_mode(after)}"] if after is not None else []
    if after is None or not _has_lines(after):
        return [f"deleted file mode {_git_mode(before)}"]
    said = []
    if _git_mode(before) != _git_mode(after):
        said += [f"old mode {_git_mode(before)}", f"new mode {_git_mode(after)}"]
    return said + _attributes(before, after)


def _attributes(before: Entry, after: Entry) -> list[str]:
    said = []
    if before.mode & ~0o777 != after.mode & ~0o777:
        said.append(f"Mode {before.mode:04o} became {after.mode:04o}")
    if (before.uid, before.gid) != (after.uid, after.gid):
        said.append(f"Owner {before.uid}:{before.gid} became {after.uid}:{after.gid}")
    if before.xattrs != after.xattrs:
        said.append("Extended attributes differ")
    if before.link != after.link:
        said.append("Hard links differ")
    return said


def _special(change: Change) -> str:
    """One line for what has no lines of its own: directories, FIFOs, devices."""
    before, after = change.before, change.after
    if before is not None and after is not None:
        said = _attributes(before, after)
        if before.mode & 0o777 != after.mode & 0o777:
            said.insert(0, f"{_kind(after)} mode {before.mode:04o} became {after.mode:04o}")
        return ", ".join(said) or f"{_kind(after)} differs"
    entry = before or after
    return f"{_kind(entry)} {change.change}" + (f", mode {entry.mode:04o}" if entry is not None else "")


def _kind(entry: Entry | None) -> str:
    return KINDS.get(entry.kind, "special file") if entry is not None else "nothing"


def _uncompared(change: Change, lines: Lines) -> str:
    is_gap = any(entry is not None and entry.gap for entry in (change.before, change.after))
    return lines.reason if is_gap else lines.reason + _sizes(change.before, change.after)


def _sizes(before: Entry | None, after: Entry | None) -> str:
    old = words.size(before.size) if before is not None and before.kind == FILE else "nothing"
    new = words.size(after.size) if after is not None and after.kind == FILE else "nothing"
    return f" ({old}, now {new})"


def _quoted(path: bytes) -> bytes:
    """As git quotes names that would break a line or fool a reader; others stay as they are."""
    text = path.decode("utf-8", "surrogateescape")
    if text.isprintable() and not any(char in text for char in '"\\'):
        return path
    special = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x09: b"\\t", 0x0D: b"\\r"}
    inner = (special.get(byte) or (b"%c" % byte if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in path)
    return b'"' + b"".join(inner) + b'"'


def stat_lines(compared: list[tuple[Change, Lines]]) -> Iterator[Line]:
    """The changes in numbers, and their sum."""
    width = min(max((len(words.path(change.path)) for change, _ in compared), default=0), 60)
    most = max((lines.added + lines.removed for _, lines in compared), default=0)
    digits = len(str(most))
    for change, lines in compared:
        name = words.path(change.path)
        yield f" {name:{width}} | {_amount(change, lines, digits, most)}".encode("utf-8", "surrogateescape"), ""
    added = sum(lines.added for _, lines in compared)
    removed = sum(lines.removed for _, lines in compared)
    total = words.count(len(compared), "path") + " changed"
    yield f"{total}, {words.count(added, 'line')} added, {words.count(removed, 'line')} removed".encode(), ""


def _amount(change: Change, lines: Lines, digits: int, most: int) -> str:
    if lines.is_binary:
        return f"binary{_sizes(change.before, change.after)}"
    if lines.reason:
        return f"{change.change}, {_uncompared(change, lines)}"
    if lines.added or lines.removed:
        scale = min(1.0, _GRAPH / most)
        plus = max(1, round(lines.added * scale)) if lines.added else 0
        minus = max(1, round(lines.removed * scale)) if lines.removed else 0
        text = f"{lines.added + lines.removed:{digits}} {'+' * plus}{'-' * minus}"
        return text if change.change == MODIFIED else f"{text} ({change.change})"
    if change.before is not None and change.after is not None and change.change in (MODE, MODIFIED):
        said = _attributes(change.before, change.after)
        if change.before.mode != change.after.mode:
            said = [f"mode {change.before.mode:04o} became {change.after.mode:04o}"]
        if said:
            return ", ".join(said).lower()
    return f"{_kind(change.after or change.before)} {change.change}"
