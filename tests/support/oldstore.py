"""Trees as data, and a store that is moved: what a fixture needs that was made elsewhere, by docs/format.md alone.

A store names folders by their absolute path, and a fixture lies in another place on every machine. So its rows are
changed as the format allows: roots in `workspaces`, and paths and addresses in the journal of effects, whose chain is
signed anew with the key that lies beside it. Timelines, trees, content and threads stay as they were written.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import sqlite3
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.tree import Fingerprint, fingerprint

Json = dict[str, Any]


def to_json(tree: Fingerprint) -> Json:
    """Path → type, mode, time, hash, link target, hard-link group and xattrs."""
    found: Json = {}
    for path, node in sorted(tree.items()):
        one: Json = {"kind": node.kind, "mode": node.mode, "mtime_ns": node.mtime_ns}
        if node.kind == "f":
            one |= {"size": node.size, "sha256": node.content}
        if node.kind == "l":
            one["target"] = _text(node.target)
        if node.group:
            one["group"] = _text(node.group)
        if node.xattrs:
            one["xattrs"] = {name: value.hex() for name, value in node.xattrs}
        found[_text(path)] = one
    return found


def look(root: Path) -> Json:
    """What a tree is now."""
    return to_json(fingerprint(root))


def differences(wanted: Json, found: Json, *, ignore: tuple[str, ...] = (), limit: int = 20) -> list[str]:
    """One line for each path that differs."""
    lines = []
    for path in sorted(wanted.keys() | found.keys()):
        a, b = wanted.get(path), found.get(path)
        if a is None or b is None:
            lines.append(f"{path!r}: {'not wanted, but there' if a is None else 'missing'}")
            continue
        fields = [name for name in sorted(a.keys() | b.keys()) if name not in ignore and a.get(name) != b.get(name)]
        if fields:
            lines.append(f"{path!r}: " + ", ".join(f"{name} {a.get(name)} -> {b.get(name)}" for name in fields))
    return lines[:limit]


def pack(base: Path, archive: Path, *, leave_out: tuple[str, ...]) -> None:
    """Everything below base, with nothing of the machine or the user that it comes from."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = info.name.removeprefix("./")
        if any(name == left or name.startswith(f"{left}/") for left in leave_out):
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as tar:
        tar.add(base, ".", filter=plain)


def unpack(archive: Path, base: Path, trees: Mapping[str, Json]) -> None:
    """Put it below base; the trees get times to the nanosecond, and xattrs where the file system has them."""
    base.mkdir(mode=0o700, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(base, filter="fully_trusted")
    for name, tree in trees.items():
        for path, one in sorted(tree.items(), reverse=True):
            at = os.path.join(os.fsencode(base / name), os.fsencode(path)) if path else os.fsencode(base / name)
            for attribute, value in one.get("xattrs", {}).items():
                with contextlib.suppress(OSError):
                    os.setxattr(at, attribute, bytes.fromhex(value), follow_symlinks=False)
            if one["kind"] not in "dl":
                os.chmod(at, one["mode"])
            os.utime(at, ns=(one["mtime_ns"], one["mtime_ns"]), follow_symlinks=False)


def move(home: Path, places: Mapping[str, str]) -> None:
    """Have the store know that what was at the keys (paths, addresses) is at the values."""
    with contextlib.closing(sqlite3.connect(home / "store.db")) as db:
        for id, root in db.execute("SELECT id, root FROM workspaces").fetchall():
            moved = _moved(os.fsdecode(root), places)
            st = os.stat(moved)
            at = (os.fsencode(moved), _signed(st.st_dev), _signed(st.st_ino), id)
            db.execute("UPDATE workspaces SET root = ?, dev = ?, ino = ?, born_at = 0 WHERE id = ?", at)
        db.commit()
    key = (home / "effects.key").read_bytes()
    with contextlib.closing(sqlite3.connect(home / "effects.db")) as db:
        last: dict[str, bytes] = {}
        rows = db.execute("SELECT workspace, seq, effect, kind, body FROM rows ORDER BY workspace, seq").fetchall()
        for workspace, seq, effect, kind, body in rows:
            prev, body = last.get(workspace, bytes(32)), _moved(body, places)
            parts = (prev, workspace.encode(), seq.to_bytes(8, "little"), effect.encode(), kind.encode(), body.encode())
            data = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
            last[workspace] = mac = hmac.digest(key, data, "sha256")
            where = (body, prev, mac, workspace, seq)
            db.execute("UPDATE rows SET body = ?, prev = ?, mac = ? WHERE workspace = ? AND seq = ?", where)
        for id, resource in db.execute("SELECT id, resource FROM effects").fetchall():
            db.execute("UPDATE effects SET resource = ? WHERE id = ?", (_moved(resource, places), id))
        db.commit()
    for witness in (home / "witness").glob("*.effects"):
        witness.unlink()


def _moved(text: str, places: Mapping[str, str]) -> str:
    for old, new in places.items():
        text = text.replace(old, new)
    return text


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def save(path: Path, value: Json) -> None:
    """Write JSON that a person can compare."""
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
