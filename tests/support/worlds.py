"""Builders of trees: one of everything that a restore has to bring back, and the changes that wreck it.

Everything is made from a seed, so a failing world can be made again. Trees are changed in place by plain calls; the
builders return nothing, the oracle (`support.tree`) says what is there.
"""

from __future__ import annotations

import functools
import os
import random
import socket
import stat
import tempfile
from pathlib import Path

OLD_NS = 1_600_000_000_987_654_321

ODD_NAMES = (
    b"new\nline",
    b"-rf",
    b"tab\there",
    b"\xff\xfe not utf-8",
    b"trailing space ",
    b"$(touch x)",
    b"back\\slash",
    b"quote'\"",
    "ü-nfc".encode(),
    "ü-nfd".encode(),
    b"e" * 255,
    b".hidden",
    b"*",
    b"\x1b[31mred",
)


@functools.cache
def xattrs_work(where: str) -> bool:
    """Whether user xattrs can be set there (tmpfs has them since Linux 6.6)."""
    with tempfile.NamedTemporaryFile(dir=where) as probe:
        try:
            os.setxattr(probe.name, "user.probe", b"1")
        except OSError:
            return False
        return True


def scratch_base() -> Path:
    """Where worlds are fast: memory if the machine has it, else the usual temporary directory."""
    shm = Path("/dev/shm")
    return (
        shm
        if os.access(shm, os.W_OK) and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 1 << 29
        else Path("/tmp")
    )


def age(root: Path | str, ns: int = OLD_NS) -> None:
    """Give every entry an old mtime of its own, with odd nanoseconds."""
    n = 0
    for directory, names, files in os.walk(os.fsencode(root), topdown=False):
        for name in [*files, *names]:
            n += 1
            stamp = ns + n * 1_000_000_007
            os.utime(os.path.join(directory, name), ns=(stamp, stamp), follow_symlinks=False)
    os.utime(root, ns=(ns, ns))


def fifty(root: Path, *, seed: int = 1) -> None:
    """The tree of C02 to C06: fifty files in nine directories, and one of everything else."""
    rnd = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    for d in ("a", "a/deep", "a/deep/er", "b", "c", "c/keep", ".git", ".git/objects", "empty", "set gid"):
        (root / d).mkdir()
    sizes = [0, 1, 80, 300, 2000, 4096, 9000, 20_000]
    homes = ["", "a", "a/deep", "a/deep/er", "b", "c", "c/keep", ".git", ".git/objects"]
    for n in range(50):
        path = root / homes[n % len(homes)] / f"file-{n:02d}.txt"
        path.write_bytes(rnd.randbytes(sizes[n % len(sizes)]))
        path.chmod((0o644, 0o600, 0o755, 0o444)[n % 4])
    for n, name in enumerate(ODD_NAMES[:6]):
        with open(os.path.join(os.fsencode(root), b"b", name), "wb") as file:
            file.write(b"odd %d" % n)
    (root / "link").symlink_to("a/file-01.txt")
    (root / "link-dir").symlink_to("a/deep")
    (root / "dangling").symlink_to("no/such/file")
    (root / "absolute").symlink_to("/etc/hostname")
    outside(root).mkdir(exist_ok=True)
    (outside(root) / "canary").write_bytes(b"must never change")
    os.utime(outside(root) / "canary", ns=(OLD_NS, OLD_NS))
    (root / "outward").symlink_to(outside(root) / "canary")
    (root / "outward-dir").mkdir()
    (root / "outward-dir" / "canary").write_bytes(b"inside")
    os.link(root / "a/file-01.txt", root / "a/hard-01")
    os.link(root / "b/file-04.txt", root / "c/hard-04")
    os.link(root / "b/file-04.txt", root / "c/keep/hard-04")
    os.mkfifo(root / "pipe", 0o640)
    with open(root / "sparse", "wb") as file:
        file.seek(300_000)
        file.write(b"end of a hole")
    (root / "set gid").chmod(0o2775)
    (root / "set gid" / "sticky").mkdir()
    (root / "set gid" / "sticky").chmod(0o1777)
    (root / "a/file-10.txt").chmod(0o4755)
    if xattrs_work(str(root)):
        os.setxattr(root / "a/file-19.txt", "user.colour", b"red\0blue")
        os.setxattr(root / "c", "user.on-a-directory", b"yes")
    age(root)


def outside(root: Path) -> Path:
    """A directory beside the tree that links lead to, and that nobody may touch."""
    return root.parent / "outside"


def touched_outside(root: Path) -> str:
    """What was done to the canary beside the tree; "" if nothing was."""
    canary = outside(root) / "canary"
    names = sorted(p.name for p in outside(root).iterdir())
    if names != ["canary"]:
        return f"holds {names}"
    if canary.read_bytes() != b"must never change" or canary.stat().st_mtime_ns != OLD_NS:
        return "the canary was changed"
    return ""


def wreck(root: Path, *, seed: int = 2) -> None:
    """C04: ten files changed, three added, three removed, one type change, a symlink, a hard link, a mode."""
    rnd = random.Random(seed)
    for n in range(0, 30, 3):  # ten changed: some grow, some shrink, one keeps size and mtime
        path = next(root.rglob(f"file-{n:02d}.txt"))
        before = path.stat()
        _rewrite(path, rnd.randbytes(before.st_size if n == 12 else (n * 37) % 5000))
        if n == 12:
            os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    (root / "added.txt").write_bytes(b"new")
    (root / "new dir").mkdir()
    (root / "new dir" / "added.bin").write_bytes(rnd.randbytes(7000))
    (root / "a" / "deep" / "added").write_bytes(b"")
    for n in (31, 32, 34):  # three removed
        next(root.rglob(f"file-{n:02d}.txt")).unlink()
    target = next(root.rglob("file-41.txt"))  # file -> directory with something in it
    target.unlink()
    target.mkdir()
    (target / "inside").write_bytes(b"was a file")
    os.rmdir(root / "empty")  # directory -> file
    (root / "empty").write_bytes(b"was a directory")
    (root / "link").unlink()
    (root / "link").symlink_to("b/file-04.txt")
    (root / "outward").unlink()  # the same link, made again: only its time differs
    (root / "outward").symlink_to(outside(root) / "canary")
    (root / "outward-dir" / "canary").unlink()  # directory -> link to a directory that has the same names
    (root / "outward-dir").rmdir()
    (root / "outward-dir").symlink_to(outside(root))
    (root / "dangling").unlink()  # symlink -> file
    (root / "dangling").write_bytes(b"was a link")
    (root / "c" / "hard-04").unlink()  # out of its group
    (root / "c" / "hard-04").write_bytes(b"alone now")
    os.link(root / "added.txt", root / "c" / "added-too")
    next(root.rglob("file-43.txt")).chmod(0o711)
    (root / "set gid").chmod(0o755)
    a, b = root / "a" / "file-01.txt", root / "a" / "file-19.txt"  # names swapped
    swap = root / "swap"
    a.rename(swap)
    b.rename(a)
    swap.rename(b)
    if xattrs_work(str(root)):
        os.removexattr(root / "c", "user.on-a-directory")
        os.setxattr(root / "a" / "file-10.txt", "user.new", b"1")


def two_of_fifty(root: Path, *, seed: int = 3) -> None:
    """C03: two files of fifty changed."""
    rnd = random.Random(seed)
    for n in (7, 22):
        _rewrite(next(root.rglob(f"file-{n:02d}.txt")), rnd.randbytes(3000 + n))


def nasty(root: Path, *, seed: int, entries: int = 30) -> None:
    """A random tree of every kind of entry, with odd names, modes and times."""
    rnd = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    directories = [os.fsencode(root)]
    files: list[bytes] = []
    for n in range(entries):
        parent = rnd.choice(directories)
        name = rnd.choice(ODD_NAMES) if rnd.random() < 0.3 else b"n%d" % n
        path = os.path.join(parent, name)
        if os.path.lexists(path) or len(path) > 3500:
            continue
        kind = rnd.choices("fdlphs", (10, 4, 3, 1, 2, 1))[0]
        if kind == "f":
            with open(path, "wb") as file:
                file.write(rnd.randbytes(rnd.choice((0, 1, 50, 5000, 70_000))))
            os.chmod(path, rnd.choice((0o644, 0o600, 0o755, 0o400, 0, 0o6755)))
            files.append(path)
        elif kind == "d":
            os.mkdir(path)
            directories.append(path)
        elif kind == "l":
            os.symlink(rnd.choice((b"..", b"n1", b"/etc/passwd", b"\xff", b"x" * 1000)), path)
        elif kind == "p":
            os.mkfifo(path, 0o600)
        elif kind == "h" and files:
            os.link(rnd.choice(files), path, follow_symlinks=False)
        elif kind == "s":
            _sparse(path, rnd.randrange(70_000, 400_000))
    for directory in directories[1:]:
        os.chmod(directory, rnd.choice((0o755, 0o700, 0o1777, 0o2755)))
    age(root, rnd.choice((OLD_NS, 1, -5_000_000_001, 4_000_000_000_000_000_007)))


def deep(root: Path, *, depth: int = 600, name: bytes = b"0123456789") -> None:
    """A chain of directories that goes below PATH_MAX, with a file at the bottom."""
    root.mkdir(parents=True, exist_ok=True)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        os.close(fd)
        fd = deeper
    out = os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd)
    os.write(out, b"deep down")
    os.close(out)
    os.close(fd)


def unix_socket(path: Path) -> None:
    """A socket file that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def clear(root: Path) -> None:
    """What a careless agent does last: remove everything below root."""
    from support.tree import erase

    erase(root, keep_root=True)


def _rewrite(path: Path, data: bytes) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | 0o200)
    path.write_bytes(data)
    path.chmod(mode)


def _sparse(path: bytes, size: int) -> None:
    with open(path, "wb") as file:
        file.write(b"start")
        file.truncate(size)
