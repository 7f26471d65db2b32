"""Random histories of a tree and its checkpoints, played against the engine and against a model that cannot be wrong.

The model is the oracle's fingerprints: what the tree was at each checkpoint, and before and after each move. A history
is plain data made from a seed, so it can be played again and cut down: `shrink` drops steps while it still fails.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.tree import Fingerprint, diff_fingerprints, erase, fingerprint

NAMES = (
    b"a",
    b"b",
    b"d",
    b"d/x",
    b"d/y",
    b"d/e",
    b"d/e/f",
    b"d/e/g",
    b"s",
    b"s/1",
    b"s/2",
    b"\xff\xfe",
    b"new\nline",
    b"n" * 255,
    b"-rf",
)
MODES = (0o600, 0o644, 0o755, 0o400, 0o4711, 0o000)
DIR_MODES = (0o755, 0o700, 0o2775, 0o1777)
TARGETS = (b"a", b"d", b"../outside", b"/etc/hostname", b"\xff", b"no/where")
SIZES = (0, 1, 17, 400, 5000, 40_000)

Step = tuple[Any, ...]


class Wrong(AssertionError):
    """The engine and the model disagree."""


def generate(seed: int, *, steps: int = 30) -> list[Step]:
    """The history of that seed: edits in bursts, with the engine's verbs between them."""
    rnd = random.Random(seed)
    history: list[Step] = [("mkdir", b"d/e"), ("mkdir", b"s")] if rnd.random() < 0.7 else []
    history += [_edit(rnd) for _ in range(rnd.randrange(2, 10))]
    history.append(("checkpoint",))
    while len(history) < steps:
        history += [_edit(rnd) for _ in range(rnd.choice((0, 1, 1, 2, 4)))]
        verb = rnd.choices(("checkpoint", "rollback", "revert", "redo", "restart"), (6, 6, 2, 5, 2))[0]
        if verb == "rollback":
            history.append((verb, rnd.randrange(100)))
        elif verb == "revert":
            history.append((verb, rnd.choice(NAMES), rnd.randrange(100)))
        else:
            history.append((verb,))
            if verb == "redo" and rnd.random() < 0.4:
                history.append(("redo",))
    return history


def _edit(rnd: random.Random) -> Step:
    name = rnd.choice(NAMES)
    kind = rnd.choices(
        (
            "write",
            "keep",
            "delete",
            "rename",
            "swap",
            "chmod",
            "type",
            "mkdir",
            "link",
            "symlink",
            "xattr",
            "fifo",
            "touch",
        ),
        (8, 1, 4, 3, 1, 2, 3, 3, 2, 2, 1, 1, 1),
    )[0]
    if kind in ("write", "keep"):
        return (kind, name, rnd.randrange(1 << 30), rnd.choice(SIZES))
    if kind in ("rename", "swap", "link"):
        return (kind, name, rnd.choice(NAMES))
    if kind == "chmod":
        return (kind, name, rnd.randrange(100))
    if kind == "type":
        return (kind, name, rnd.choice(("f", "d", "l")), rnd.randrange(1 << 30))
    if kind == "symlink":
        return (kind, name, rnd.choice(TARGETS))
    if kind == "xattr":
        return (kind, name, rnd.choice(("user.a", "user.b")), rnd.randbytes(rnd.choice((0, 5, 300))))
    if kind == "touch":
        return (kind, name, rnd.choice((0, 1, -1_000_000_001, 1_234_567_890_123_456_789)))
    return (kind, name)


# --- what a person or an agent does to the tree


def edit(root: bytes, step: Step) -> None:
    """Do one edit; one that makes no sense here (no such file) is passed over."""
    try:
        _EDITS[step[0]](os.path.join(root, step[1]), root, *step[2:])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError):
        pass
    except OSError as error:
        if error.errno not in (18, 22, 39, 40, 95, 1, 6):  # EXDEV EINVAL ENOTEMPTY ELOOP ENOTSUP EPERM ENXIO
            raise


def _write(path: bytes, root: bytes, seed: int, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    os.write(fd, random.Random(seed).randbytes(size))
    os.close(fd)


def _keep(path: bytes, root: bytes, seed: int, size: int) -> None:
    """Other bytes, but the same size and mtime."""
    st = os.lstat(path)
    if stat.S_ISREG(st.st_mode):
        with open(path, "r+b") as file:
            file.write(random.Random(seed).randbytes(st.st_size))
        os.utime(path, ns=(st.st_mtime_ns, st.st_mtime_ns))


def _delete(path: bytes, root: bytes) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _swap(path: bytes, root: bytes, other: bytes) -> None:
    other = os.path.join(root, other)
    middle = os.path.join(root, b"in between")
    if os.path.lexists(other) and os.path.lexists(path):
        os.rename(path, middle)
        try:
            os.rename(other, path)
            os.rename(middle, other)
        except OSError:
            os.rename(middle, path if not os.path.lexists(path) else other)


def _chmod(path: bytes, root: bytes, n: int) -> None:
    st = os.lstat(path)
    if stat.S_ISDIR(st.st_mode):
        os.chmod(path, DIR_MODES[n % len(DIR_MODES)])
    elif not stat.S_ISLNK(st.st_mode):
        os.chmod(path, MODES[n % len(MODES)])


def _type(path: bytes, root: bytes, kind: str, seed: int) -> None:
    if os.path.lexists(path):
        _delete(path, root)
    if kind == "d":
        os.mkdir(path)
        _write(os.path.join(path, b"inside"), root, seed, 10)
    elif kind == "l":
        os.symlink(TARGETS[seed % len(TARGETS)], path)
    else:
        _write(path, root, seed, 100)


_EDITS: dict[str, Callable[..., None]] = {
    "write": _write,
    "keep": _keep,
    "delete": _delete,
    "rename": lambda path, root, to: os.rename(path, os.path.join(root, to)),
    "swap": _swap,
    "chmod": _chmod,
    "type": _type,
    "mkdir": lambda path, root: os.makedirs(path, exist_ok=True),
    "link": lambda path, root, to: os.link(path, os.path.join(root, to), follow_symlinks=False),
    "symlink": lambda path, root, to: os.symlink(to, path),
    "xattr": lambda path, root, key, value: os.setxattr(path, key, value, follow_symlinks=False),
    "fifo": lambda path, root: os.mkfifo(path, 0o640),
    "touch": lambda path, root, ns: os.utime(path, ns=(ns, ns), follow_symlinks=False),
}


# --- playing


@dataclass
class Move:
    """A rollback or revert that redo can take back."""

    before: Fingerprint
    after: Fingerprint


@dataclass
class Play:
    """One history on one tree, with its model. `open_engine` gives an engine on the tree, a restart a new one."""

    base: Path
    open_engine: Callable[[Path], Any]
    checkpoints: list[tuple[str, Fingerprint]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    rollbacks: int = 0
    redos: int = 0

    def __post_init__(self) -> None:
        self.root = self.base / "tree"
        self.root.mkdir(parents=True)
        self.engine = self.open_engine(self.root)

    def run(self, history: list[Step]) -> None:
        """Play it; raises Wrong with the step's number."""
        try:
            for number, step in enumerate(history):
                try:
                    self._step(step)
                except Wrong as wrong:
                    raise Wrong(f"step {number} {step!r}: {wrong}") from None
            self._end()
        finally:
            self.engine.close()

    def _step(self, step: Step) -> None:
        verb = step[0]
        if verb in _EDITS:
            edit(os.fsencode(self.root), step)
        elif verb == "restart":
            self.engine.close()
            self.engine = self.open_engine(self.root)
        elif verb == "checkpoint":
            self._checkpoint()
        elif verb == "redo":
            self._redo()
        elif self.checkpoints:
            if verb == "rollback":
                self._rollback(*self.checkpoints[step[1] % len(self.checkpoints)])
            else:
                self._revert(step[1], *self.checkpoints[step[2] % len(self.checkpoints)])

    def _checkpoint(self) -> None:
        before = fingerprint(self.root)
        id, gaps = self.engine.checkpoint(f"number {len(self.checkpoints)}")
        self._expect(before, "a checkpoint changed the tree")
        if gaps:
            raise Wrong(f"the checkpoint has gaps: {gaps}")
        if id in {known for known, _ in self.checkpoints}:
            raise Wrong(f"id {id} was given twice")
        self.checkpoints.append((id, before))
        changed = self.engine.changes()
        if changed:
            raise Wrong(f"just after a checkpoint, status says: {changed}")

    def _rollback(self, id: str, wanted: Fingerprint) -> None:
        before, inodes = fingerprint(self.root), self._inodes()
        self.engine.rollback(id)
        self.rollbacks += 1
        self._expect(wanted, f"rollback to {id}")
        self._same_inodes(before, wanted, inodes)
        if before != wanted:
            self.moves.append(Move(before, wanted))

    def _revert(self, path: bytes, id: str, then: Fingerprint) -> None:
        before = fingerprint(self.root)
        told = self.engine.revert(path, id)
        after = fingerprint(self.root)
        if told == "nothing":
            self._expect(before, "a revert of nothing changed something")
            return
        for p in sorted(before.keys() | after.keys() | then.keys()):
            inside = p == path or p.startswith(path + b"/")
            wanted = then.get(p) if inside else before.get(p)
            if _is_parent(p, path) and p in then and (wanted is None or wanted.kind != "d"):
                continue  # a folder that had to be made again
            if not _alike(wanted, after.get(p), is_exact=inside):
                raise Wrong(f"revert of {path!r}: {p!r} is {after.get(p)}, should be {wanted}")
        if before != after:
            self.moves.append(Move(before, after))

    def _redo(self) -> None:
        before = fingerprint(self.root)
        told = self.engine.redo()
        self.redos += 1
        if not self.moves:
            if told != "nothing":
                raise Wrong(f"redo said {told!r} although nothing was rolled back")
            self._expect(before, "a redo of nothing changed something")
            return
        move = self.moves[-1]
        if told == "nothing":
            raise Wrong("redo says that there is nothing to redo")
        if told in ("conflict", "kept"):
            self._expect(before, "a refused redo changed something")
            if before == move.after:
                raise Wrong(f"redo says {told!r} although nothing was edited")
            return
        self.moves.pop()
        after = fingerprint(self.root)
        if before == move.after:
            self._expect(move.before, "redo")
            return
        for p in sorted(before.keys() | after.keys() | move.before.keys() | move.after.keys()):
            was_moved = not _alike(move.before.get(p), move.after.get(p))
            is_edited = not _alike(_no_time(move.after.get(p)), _no_time(before.get(p)))
            if was_moved and is_edited and not _alike(before.get(p), after.get(p)):
                raise Wrong(f"redo lost an edit of {p!r}: {before.get(p)} became {after.get(p)}")
            wanted = move.before.get(p) if was_moved and not is_edited else before.get(p)
            stays = p in after and after[p].kind == "d" and any(_is_parent(p, q) and q not in move.after for q in after)
            if stays and (wanted is None or wanted.kind != "d"):
                continue  # a folder in which someone made something new stays a folder
            if not _alike(wanted, after.get(p)):
                raise Wrong(f"redo: {p!r} is {after.get(p)}, should be {wanted}")

    def _end(self) -> None:
        problems = self.engine.verify()
        if problems:
            raise Wrong(f"verify: {problems}")
        for id, wanted in self.checkpoints[-1:] + self.checkpoints[:1]:
            self.engine.rollback(id)
            self._expect(wanted, f"at the end, rollback to {id}")

    def _expect(self, wanted: Fingerprint, what: str) -> None:
        differences = diff_fingerprints(wanted, fingerprint(self.root), limit=8)
        if differences:
            raise Wrong(what + ":\n    " + "\n    ".join(differences))

    def _inodes(self) -> dict[bytes, int]:
        found = {}
        for directory, folders, files in os.walk(os.fsencode(self.root)):
            for name in (*folders, *files):  # a link to a folder is among the folders
                path = os.path.join(directory, name)
                found[os.path.relpath(path, os.fsencode(self.root))] = os.lstat(path).st_ino
        return found

    def _same_inodes(self, before: Fingerprint, after: Fingerprint, inodes: dict[bytes, int]) -> None:
        for path, number in self._inodes().items():
            if path in before and before[path] == after[path] and not after[path].group and inodes[path] != number:
                raise Wrong(f"{path!r} did not change, but its inode did")


def _is_parent(path: bytes, of: bytes) -> bool:
    return path == b"" or of.startswith(path + b"/")


def _alike(a: Any, b: Any, *, is_exact: bool = False) -> bool:
    """Equal; of folders the times do not count, nor do names of a group that others joined or left."""
    if a is None or b is None or (is_exact and a.kind != "d"):
        return _no_group(a) == _no_group(b)
    if a.kind == b.kind == "d":
        return a._replace(mtime_ns=0) == b._replace(mtime_ns=0)
    return _no_group(a) == _no_group(b)


def _no_time(node: Any) -> Any:
    """The same bytes written again are no edit."""
    return node and node._replace(mtime_ns=0)


def _no_group(node: Any) -> Any:
    return node and node._replace(group=b"")


def play(history: list[Step], base: Path, open_engine: Callable[[Path], Any]) -> Play:
    """Play a history in a fresh directory below base, which is removed afterwards."""
    base.mkdir(parents=True)
    try:
        game = Play(base, open_engine)
        game.run(history)
        return game
    finally:
        erase(base)


def shrink(history: list[Step], fails: Callable[[list[Step]], bool], *, tries: int = 400) -> list[Step]:
    """Drop steps, large pieces first, for as long as it still fails."""
    size = max(1, len(history) // 2)
    while size and tries > 0:
        at = 0
        while at < len(history) and tries > 0:
            shorter = history[:at] + history[at + size :]
            tries -= 1
            if shorter and fails(shorter):
                history = shorter
            else:
                at += size
        size //= 2
    return history
