"""Trees to measure on: made, changed and compared. Everything follows from a seed, so every system sees the same."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

WORDS = [
    "self",
    "return",
    "value",
    "index",
    "import",
    "config",
    "handler",
    "request",
    "response",
    "def",
    "class",
    "for",
]
WORDS += ["in", "if", "else", "raise", "error", "path", "name", "list", "dict", "result", "update", "create", "delete"]
WORDS += ["user", "session", "token", "buffer", "length", "offset", "state", "event", "async", "await", "None", "True"]

Print = dict[bytes, tuple[object, ...]]


def make_text(rng: random.Random, size: int) -> bytes:
    """Text that looks and compresses like source code."""
    lines: list[str] = []
    left = size
    while left > 0:
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 9))]
        line = (
            "    " * rng.randint(0, 3)
            + f"{words[0]}_{rng.randrange(400)} = "
            + ".".join(words)
            + f"({rng.randrange(99)})"
        )
        lines.append(line)
        left -= len(line) + 1
    return ("\n".join(lines) + "\n").encode()[:size]


def small_files(root: Path, count: int, *, seed: int = 1) -> None:
    """`count` files, log-normal around 4 KB, nine to a directory; one in twenty is not compressible."""
    rng = random.Random(seed)
    pool = make_text(rng, 4 << 20)
    folder = root
    for number in range(count):
        if number % 9 == 0:
            group = number // 9
            folder = root / f"part{group // 400:03}" / f"module{group // 20 % 20:02}" / f"pkg{group % 20:02}"
            folder.mkdir(parents=True, exist_ok=True)
        size = max(60, min(int(rng.lognormvariate(8.3, 1.1)), 400_000))
        head = f"# file {number}\n".encode()
        if number % 20 == 7:
            data, name = rng.randbytes(size), f"image{number}.png"
        else:
            start = rng.randrange(len(pool) - size) if size < len(pool) else 0
            data, name = head + pool[start : start + size - len(head)], f"source_{number}.py"
        (folder / name).write_bytes(data)


def with_large_files(root: Path, count: int, *, large: int = 20, size: int = 50 << 20) -> None:
    """As `small_files`, with large ones beside them: half logs that compress, half that don't."""
    small_files(root, count)
    rng = random.Random(2)
    (root / "data").mkdir()
    block = make_text(rng, 8 << 20)
    for number in range(large):
        with (root / "data" / f"large{number:02}.bin").open("wb") as file:
            for part in range(0, size, 1 << 20):
                amount = min(1 << 20, size - part)
                if number % 2:
                    file.write(rng.randbytes(amount))
                else:
                    start = rng.randrange(len(block) - amount)
                    file.write(b"%020d\n" % rng.getrandbits(60) + block[start : start + amount - 21])


def site_packages(root: Path) -> None:
    """Real Python packages. Raises CalledProcessError where none can be installed."""
    wanted = ["hypothesis", "mypy", "rich", "pygments", "setuptools", "pip"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", root, *wanted], check=True, env=quiet_env()
    )


def node_modules(root: Path) -> None:
    """Real JavaScript packages. Raises CalledProcessError or FileNotFoundError where none can be installed."""
    wanted = ["typescript", "webpack", "eslint", "react", "lodash"]
    subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *wanted],
        check=True,
        cwd=root,
        timeout=600,
        env=quiet_env(),
    )


def quiet_env() -> dict[str, str]:
    """The environment without what would change how Python programs start (no bytecode, other paths)."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GIT_", "REPRIEVE", "RESTIC", "BORG"))}


TREES: dict[str, Callable[[Path], None]] = {
    "1000": lambda root: small_files(root, 1_000),
    "10000": lambda root: small_files(root, 10_000),
    "100000": lambda root: small_files(root, 100_000),
    "large": lambda root: with_large_files(root, 10_000),
    "site-packages": site_packages,
    "node_modules": node_modules,
}


def files_of(root: Path) -> list[Path]:
    """Regular files, relative and sorted: what changes are picked from."""
    found = []
    for folder, _, names in os.walk(root):
        found += [Path(folder, name) for name in names if not Path(folder, name).is_symlink()]
    return sorted(path.relative_to(root) for path in found)


def edit(root: Path, files: list[Path], count: int, *, seed: object) -> None:
    """Edit `count` of the files as an agent does: some lines of a text, a page of a large file."""
    rng = random.Random(str(seed))
    for path in rng.sample(files, min(count, len(files))):
        target = root / path
        size = target.stat().st_size
        if size > 4 << 20:
            with target.open("r+b") as file:
                file.seek(rng.randrange(size - 4096))
                file.write(rng.randbytes(4096))
            continue
        lines = target.read_bytes().split(b"\n")
        for _ in range(3):
            lines[rng.randrange(len(lines))] = make_text(rng, 40).rstrip()
        # replaced by rename, as editors and agents do
        beside = target.with_name(target.name + ".new")
        beside.write_bytes(b"\n".join(lines))
        shutil.copystat(target, beside)
        os.utime(beside)
        beside.replace(target)


def wreck(root: Path, files: list[Path], count: int, *, seed: object) -> list[Path]:
    """Edit four fifths of `count`, delete a tenth, create a tenth (and give these); for 1: edit it."""
    rng = random.Random(str(seed))
    chosen = rng.sample(files, min(count, len(files)))
    gone = count // 10
    edit(root, chosen[gone:], count - 2 * gone, seed=seed)
    for path in chosen[:gone]:
        (root / path).unlink()
    created = [(root / path).with_suffix(".created") for path in chosen[len(chosen) - gone :]]
    for path in created:
        path.write_bytes(make_text(rng, 3000))
    return created


def empty(root: Path) -> None:
    """Delete everything in the tree."""
    for entry in os.scandir(root):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def rewrite(root: Path, files: list[Path]) -> None:
    """Change every file: an agent's formatter ran over the tree."""
    for path in files:
        with (root / path).open("ab") as file:
            file.write(b"\n# reformatted\n")


def fingerprint(root: Path) -> Print:
    """Every path with its kind, mode, mtime and bytes (as hash), for comparing two states exactly."""
    import hashlib

    found: Print = {}
    for folder, dirs, names in os.walk(os.fsencode(root)):
        for name in [*dirs, *names]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content: object = None
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            found[os.path.relpath(path, os.fsencode(root))] = (
                stat.S_IFMT(info.st_mode),
                content,
                info.st_mode,
                info.st_mtime_ns,
            )
    return found


def compare(wanted: Print, got: Print) -> str:
    """ "exact", "bytes" (modes or times differ), or what is wrong."""
    lost = [path for path in wanted if path not in got or wanted[path][:2] != got[path][:2]]
    if lost:
        return f"WRONG: {len(lost)} paths lost or different"
    if len(got) != len(wanted):
        return f"{len(got) - len(wanted)} left over"
    return "exact" if got == wanted else "bytes"
