"""A tree as text: one line per entry, the same on every machine and for every user."""

from __future__ import annotations

import os
from pathlib import Path

from support.tree import Node, fingerprint

OLD_NS = 1_500_000_000_000_000_001
_STEP_NS = 1_000_000_007
_SHOWN = 160  # longer content is given by its hash


def age(root: Path) -> None:
    """Give every entry an old time of its own, in the order of the names."""
    everything = sorted([*root.rglob("*"), root], reverse=True)
    counted = [path for path in everything if ".git" not in path.relative_to(root).parts]  # how many git has is its own
    stamps = {path: OLD_NS + number * _STEP_NS for number, path in enumerate(counted)}
    for path in everything:
        stamp = stamps.get(path, OLD_NS)
        os.utime(path, ns=(stamp, stamp), follow_symlinks=False)


def manifest(root: Path, *, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Path → type, mode, time, and content or link target. A time that `age` did not set is `new`."""
    found = fingerprint(root, skip=[os.fsencode(name) for name in skip])
    return {_text(path) or ".": _line(root, path, node) for path, node in sorted(found.items())}


def _line(root: Path, path: bytes, node: Node) -> str:
    number, rest = divmod(node.mtime_ns - OLD_NS, _STEP_NS)
    time = f"@{number}" if rest == 0 and 0 <= number < 10_000 else "new"
    words = [node.kind, f"{node.mode:04o}" if node.kind != "l" else "-", time]
    if node.kind == "l":
        words.append("-> " + _text(node.target))
    if node.kind == "f":
        words.append(_content(root, path, node))
    if node.group:
        words.append("= " + _text(node.group))
    return " ".join(words)


def _content(root: Path, path: bytes, node: Node) -> str:
    with open(os.path.join(os.fsencode(root), path), "rb") as file:
        data = file.read(_SHOWN + 1)
    if data.startswith(b"SQLite format 3"):
        return "database"  # its bytes depend on SQLite's version
    if len(data) <= _SHOWN and data.isascii() and b"\0" not in data:
        return ascii(data.decode())
    return f"{node.size} bytes {node.content[:16]}"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
