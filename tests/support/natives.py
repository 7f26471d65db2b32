"""Trees, rows and limits for the tests of the native functions."""

from __future__ import annotations

import os
import random
import resource
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reprieve.files import _native, native

RACY, CHUNKED, NEEDS, GAP = 1, 2, 4, 8
HEADER = struct.Struct("<8sQQQII16sQ")
ROW = struct.Struct("<IHBBIIIIQqqIIQQQQ32sII")
FUTURE = (1 << 40, 0)  # a floor that no timestamp reaches: nothing is racy
TAG = b"0123456789abcdef"
NAMES = [name for name in native.__all__ if name != "IMPLEMENTATION"]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
Model = dict[bytes, tuple[bytes, int, int]]


class Root:
    """A directory with its descriptor, and short ways to put things there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Root:
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def at(self, path: bytes) -> bytes:
        return os.fsencode(self.path) + b"/" + path

    def write(self, path: bytes, content: bytes = b"x") -> None:
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        with open(self.at(path), "wb") as f:
            f.write(content)

    def read(self, path: bytes) -> bytes:
        with open(self.at(path), "rb") as f:
            return f.read()


def rows_of(n: ModuleType, tree: bytes | bytearray) -> dict[bytes, tuple[Any, ...]]:
    return {row[0]: row for row in (n.get(tree, i) for i in range(HEADER.unpack_from(tree)[1]))}


def paths_of(tree: bytes | bytearray) -> list[bytes]:
    return list(rows_of(_native, tree))


def flags_of(tree: bytes | bytearray) -> dict[bytes, int]:
    return {path: row[9] for path, row in rows_of(_native, tree).items()}


def read_all(n: ModuleType, root_fd: int, rows: bytearray) -> dict[bytes, bytes]:
    """Read every row that needs it; the content by path."""
    found, at = {}, 0
    while at >= 0:
        data, parts, at, problems = n.read_rows(root_fd, rows, at, 1 << 20, 1 << 24)
        assert problems == []
        for row, off, length, _, _ in parts:
            found[n.get(rows, row)[0]] = data[off : off + length]
    return found


def index_of(n: ModuleType, root_fd: int, *, read: bool = True) -> bytearray:
    """A settled index of what is there now: nothing in it is racy."""
    rows, _, problems = n.scan(root_fd, None, *FUTURE)
    assert problems == []
    if read:
        read_all(n, root_fd, rows)
    merged: bytearray = n.merge(None, rows, [], {}, TAG)
    return merged


def tree_of(items: list[dict[str, Any]], tag: bytes = bytes(16)) -> bytearray:
    """A packed tree from dicts, in the order given."""
    rows, paths, extras = b"", b"", b""
    for item in items:
        i = {"kind": b"f", "flags": 0, "mode": 0o644, "size": 0, "content": bytes(32), "extra": b"", "link": 0, **item}
        rows += ROW.pack(
            len(paths), len(i["path"]), i["kind"][0], i["flags"], i["mode"], i.get("uid", 0), i.get("gid", 0),
            i.get("nlink", 1), i["size"], i.get("mtime_s", 0), i.get("ctime_s", 0), i.get("mtime_ns", 0),
            i.get("ctime_ns", 0), i.get("ino", 0), i.get("dev", 0), i.get("rdev", 0), i["link"], i["content"],
            len(extras), len(i["extra"]),
        )  # fmt: skip
        paths += i["path"]
        extras += i["extra"]
    body = rows + paths + extras
    return bytearray(HEADER.pack(b"RPTREE01", len(items), len(paths), len(extras), zlib.crc32(body), 0, tag, 0) + body)


def sort_key(path: bytes) -> bytes:
    return path.replace(b"/", b"\0")


def extra(target: bytes = b"", xattrs: tuple[tuple[bytes, bytes], ...] = (), gap: bytes = b"") -> bytes:
    parts = [struct.pack("<I", len(target)), target, struct.pack("<H", len(xattrs))]
    for name, value in xattrs:
        parts += [struct.pack("<H", len(name)), name, struct.pack("<I", len(value)), value]
    return b"".join([*parts, struct.pack("<H", len(gap)), gap])


@contextmanager
def descriptors_limited_to(extra_count: int) -> Iterator[None]:
    """The process may open only so many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1 if os.path.isdir("/proc/self/fd") else probe
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + extra_count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def without_root(call: Callable[[], None]) -> None:
    """Run in a child that has given up root, so that permissions count."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            call()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def grow_nasty_tree(root: Root, rng: random.Random, count: int, *, destroy: bool = True) -> None:
    """Add, change and remove things of all kinds, with names that nobody wants."""
    dirs = [b""]
    for base, names, _ in os.walk(os.fsencode(root.path)):
        dirs += [os.path.relpath(os.path.join(base, name), os.fsencode(root.path)) for name in names]
    dirs = [d for d in dirs if not os.path.islink(root.at(d))]
    for _ in range(count):
        dir = rng.choice(dirs)
        name = bytes(rng.choice([c for c in range(1, 256) if c != 47]) for _ in range(rng.choice([1, 2, 9, 60])))
        if name in (b".", b".."):
            continue
        path = dir + b"/" + name if dir else name
        if os.path.lexists(root.at(path)) and not os.path.isfile(root.at(path)):
            continue  # writing into a FIFO would wait for its reader
        try:
            match rng.randrange(9):
                case 0 | 1:
                    os.mkdir(root.at(path))
                    dirs.append(path)
                case 2:
                    os.symlink(rng.randbytes(rng.randrange(1, 40)).replace(b"\0", b"x"), root.at(path))
                case 3:
                    os.mkfifo(root.at(path))
                case 4 if destroy and len(dirs) > 3:
                    victim = dirs.pop(rng.randrange(1, len(dirs)))
                    shutil.rmtree(root.at(victim))
                    if rng.random() < 0.5:
                        root.write(victim, b"was a directory")
                    dirs = [d for d in dirs if d != victim and not d.startswith(victim + b"/")]
                case 5:
                    os.chmod(root.at(rng.choice(dirs)), rng.choice([0o700, 0o755, 0o1777]))
                case _:
                    root.write(path, rng.randbytes(rng.choice([0, 1, 63, 4096, 70_000])))
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            pass


def pack_model(model: Model) -> bytearray:
    items = [
        {"path": p, "kind": k, "mode": m, "flags": f, "extra": extra(b"t" * m) if k == b"l" else b""}
        for p, (k, m, f) in model.items()
    ]
    return tree_of(sorted(items, key=lambda i: sort_key(i["path"])))


def unpack_model(n: ModuleType, tree: bytearray) -> Model:
    return {path: (row[1], row[2], row[9]) for path, row in rows_of(n, tree).items()}


def resealed(tree: bytearray) -> bytearray:
    struct.pack_into("<I", tree, 32, zlib.crc32(tree[64:]))
    return tree


def read_first(n: ModuleType, root_fd: int, rows: bytearray) -> object:
    data, parts, next, problems = n.read_rows(root_fd, rows, 0, 100, 100)
    return [data[off : off + length] for _, off, length, _, _ in parts], next, problems, rows


def outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except (ValueError, IndexError) as e:
        return type(e).__name__
