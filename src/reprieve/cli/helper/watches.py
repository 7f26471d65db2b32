"""The trees that the helper follows, a few of them, and its answers to commands that ask what changed there."""

from __future__ import annotations

import os
import select
import socket
import time

from reprieve.files import marks, told
from reprieve.files.follow import Follower, Lost
from reprieve.files.mounts import plain

_TREES = 4
_SHARE = 4  # of the watches that the system allows a user at most this part, so that editors find some
_MOST = 50_000  # of them; each keeps an inode in the kernel's memory, about a kilobyte
_MARKS = 31, 32  # part of the marks, which hardly anybody else uses; what the system allows is 1 % of its memory
_MOST_MARKS = 250_000  # that is 60 MB here
_SLICE_S = 0.004  # as long may an answer have to wait
_ANSWER_S = 0.02  # as long may an answer take
_QUIET_S = 0.02  # who opened a file is looked for when nothing happens for a moment
_REST_S = 0.04  # and that at a tenth of the time: until then such a file is looked at, which costs little
_BREATH_S = 0.05  # events are taken in heaps, or a build would wake us for each file
_AGAIN_S = 10.0  # before a tree is followed anew whose follower was lost
_CHECK_EVERY = 50  # answers after which everything is looked at by one who does not believe us
# Local ones, where nobody can write past this system's own calls.
_FILE_SYSTEMS = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"tmpfs", b"f2fs")
_MOUNTS = "/proc/self/mountinfo"
_LIMIT = "/proc/sys/fs/inotify/max_user_watches"

_SEND_S = 0.25

Identity = tuple[int, int]
Mount = tuple[bytes, bytes, bytes]  # where, type, options of the file system


class _Tree:
    """One of them: followed, to be followed later, or never."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.follower: Follower | None = None
        self.why = ""  # it is not followed
        self.is_final = False
        self.again_at = 0.0
        self.asked_at = 0.0
        self.answers = 0
        self.taken_at = 0.0  # when its events were last taken
        self.worked_at = 0.0

    def due_at(self) -> float:
        """When there is something to do for it."""
        if self.follower is None or not self.follower.has_work:
            return 1e12
        if self.follower.is_behind or not self.follower.id:
            return 0.0
        if self.follower.is_pressed:
            return self.worked_at + _SLICE_S  # after a search through all files: 10 µs each, half of the time
        return max(self.follower.quiet_at + _QUIET_S, self.worked_at + _REST_S)


class Watches:
    """All of them. Never raises: what goes wrong is not followed."""

    def __init__(self, note_fd: int) -> None:
        self._note_fd = note_fd  # where `doctor` reads what is followed
        self._trees: dict[Identity, _Tree] = {}
        self._mounts = -1
        self._moved = select.poll()
        self._places: list[Mount] = []
        self.rest_until = 0.0  # a command is at work: events are taken, all else can wait
        self.ticket = b""  # that a command left in the last answered question
        self._note()  # what an earlier helper followed is not followed any longer

    def close(self) -> None:
        """Let go of everything; in a fork, of its copy."""
        if self._mounts >= 0:
            os.close(self._mounts)
        for tree in self._trees.values():
            if tree.follower is not None:
                tree.follower.close()

    def newest(self) -> bytes:
        """The root of the tree that was asked about last, b"" if none was."""
        return max(self._trees.values(), key=lambda tree: tree.asked_at).root if self._trees else b""

    # -- for the server's loop

    def fds(self) -> list[int]:
        """What to wait for; none of a tree whose events were taken just now."""
        now = time.monotonic()
        trees = [tree for tree in self._trees.values() if now - tree.taken_at >= _BREATH_S]
        return [fd for tree in trees if tree.follower is not None for fd in tree.follower.fds]

    def patience_s(self) -> float:
        """How long the loop may wait: there is something to do then."""
        waits = [1e9]
        now = time.monotonic()
        for tree in self._trees.values():
            if tree.follower is None:
                continue
            if now - tree.taken_at < _BREATH_S:
                waits.append(_BREATH_S - (now - tree.taken_at))
            waits.append(max(0.0, max(tree.due_at(), self.rest_until) - now))
        return min(waits)

    def work(self, ready: set[int]) -> None:
        """Take what happened, and do a little of what there is to do."""
        for tree in self._trees.values():
            follower = tree.follower
            if follower is None:
                continue
            try:
                if not ready.isdisjoint(follower.fds):
                    tree.taken_at = time.monotonic()
                    follower.drain()
                now = time.monotonic()
                if max(tree.due_at(), self.rest_until) <= now:
                    had = follower.id
                    follower.work(now + _SLICE_S)
                    tree.worked_at = time.monotonic()
                    if follower.id != had:
                        self._note()
            except (Lost, OSError) as error:
                self._lose(tree, error)

    def answer(self, connection: socket.socket) -> bool:
        """Answer one question of a command; False if there will be no more."""
        try:
            connection.settimeout(_SEND_S)  # a command that was stopped must not stop us
            head = connection.recv(told.QUESTION.size, socket.MSG_WAITALL)
            if len(head) < told.QUESTION.size:
                return False
            kind, length, device, inode, id, seq = told.QUESTION.unpack(head)
            text = connection.recv(length, socket.MSG_WAITALL) if length else b""
            if kind == told.ASK:
                connection.sendall(self._ask(text, (device, inode), id, seq))
            elif kind == told.LIED:
                self._distrust(text, (device, inode))
            elif kind == told.USELESS:
                self._spare((device, inode))
            elif kind == told.TICKET:
                self.ticket = text
        except OSError:
            return False  # the command is gone, or does not read
        return True

    def since(self, root: bytes, identity: Identity, mark: told.Mark) -> dict[bytes, int] | None:
        """What may have changed since then; None: a command has to find out, or is to check what we say."""
        tree = self._trees.get(identity)
        if tree is None or tree.root != root or tree.follower is None or not tree.follower.id:
            return None
        self._look_at_mounts()  # may give one up
        tree = self._trees[identity]
        if tree.follower is None or (tree.answers + 1) % _CHECK_EVERY == 0:
            return None
        now = tree.asked_at = time.monotonic()
        try:
            is_all, paths = tree.follower.tell(mark.id, mark.seq, now + _ANSWER_S)
        except (Lost, OSError) as error:
            self._lose(tree, error)
            return None
        tree.answers += is_all
        return paths if is_all else None

    def _distrust(self, path: bytes, identity: Identity) -> None:
        if (tree := self._trees.get(identity)) is not None:
            self._give_up(tree, f"a change of {os.fsdecode(path)!r} was not noticed", is_final=True)

    def _spare(self, identity: Identity) -> None:
        if (tree := self._trees.get(identity)) is not None:
            self._give_up(tree, "it has many more names than can be followed", is_final=True)

    # -- answers

    def _ask(self, root: bytes, identity: Identity, id: bytes, since: int) -> bytes:
        tree = self._trees.get(identity)
        if tree is None or tree.root != root:
            tree = self._trees[identity] = self._replaced(tree, root)
        now = tree.asked_at = time.monotonic()
        self._look_at_mounts()
        if tree.follower is None:
            if not tree.is_final and now >= tree.again_at:
                self._begin(tree, identity)
            return told.ANSWER.pack(told.NOTHING, 0, bytes(16), 0, False)
        follower = tree.follower
        if not follower.id:
            return told.ANSWER.pack(told.NOTHING, 0, bytes(16), 0, False)
        try:
            is_all, paths = follower.tell(id, since, now + _ANSWER_S)
        except (Lost, OSError) as error:
            self._lose(tree, error)
            return told.ANSWER.pack(told.NOTHING, 0, bytes(16), 0, False)
        parts: list[bytes] = []
        if is_all:
            for path, how in paths.items():
                parts += (told.NAME.pack(how, len(path)), path)
        body = b"".join(parts)
        tree.answers += is_all
        is_due = is_all and tree.answers % _CHECK_EVERY == 0
        kind = told.ALL if is_all else told.SINCE
        return told.ANSWER.pack(kind, len(body), follower.id, follower.seq, is_due) + body

    def _replaced(self, old: _Tree | None, root: bytes) -> _Tree:
        if old is not None and old.follower is not None:
            old.follower.close()
        for identity, tree in tuple(self._trees.items()):
            if tree.root == root and tree is not old:  # another folder has its name now
                if tree.follower is not None:
                    tree.follower.close()
                del self._trees[identity]
        others = [tree for tree in self._trees.values() if tree is not old and tree.follower is not None]
        if len(others) >= _TREES:
            self._give_up(min(others, key=lambda tree: tree.asked_at), "others are in use")
        return _Tree(root)

    def _begin(self, tree: _Tree, identity: Identity) -> None:
        tree.why = unfit(self._places, tree.root)
        if tree.why:
            tree.again_at = time.monotonic() + _AGAIN_S
            self._note()
            return
        others = [other.follower for other in self._trees.values() if other.follower is not None]
        watches = min(_MOST, _allowed() // _SHARE) - sum(other.watches for other in others)
        part, whole = _MARKS
        own = min(_MOST_MARKS, marks.allowed() * part // whole) - sum(other.marks for other in others)
        try:
            tree.follower = Follower(tree.root, identity, most=watches, most_marks=own)
        except (Lost, OSError) as error:
            self._lose(tree, error)

    def _lose(self, tree: _Tree, error: Lost | OSError) -> None:
        self._give_up(tree, str(error), is_final=isinstance(error, Lost) and error.is_final)

    def _give_up(self, tree: _Tree, why: str, *, is_final: bool = False) -> None:
        if tree.follower is not None:
            tree.follower.close()
            tree.follower = None
        tree.why, tree.is_final = why, is_final
        tree.again_at = time.monotonic() + _AGAIN_S
        self._note()

    def _look_at_mounts(self) -> None:
        """A mount is no event of the directory that it hides."""
        if self._mounts < 0:
            self._mounts = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
            self._moved.register(self._mounts, select.POLLPRI | select.POLLERR)
        elif not self._moved.poll(0):
            return
        self._places = _read_mounts(self._mounts)
        for tree in self._trees.values():
            if tree.follower is not None and (why := unfit(self._places, tree.root)):
                self._give_up(tree, why)

    def _note(self) -> None:
        lines = []
        for tree in self._trees.values():
            if tree.follower is not None and tree.follower.id:
                lines.append(f"followed\t{tree.root!r}\t{_amount(tree.follower)}")
            elif tree.why:
                lines.append(f"not followed\t{tree.root!r}\t{ascii(tree.why)[1:-1]}")
        os.ftruncate(self._note_fd, 0)
        os.pwrite(self._note_fd, "".join(f"{line}\n" for line in lines).encode(), 0)


def unfit(mounts: list[Mount], root: bytes) -> str:
    """Why a tree cannot be followed there, "" if it can: another mount inside, or a file system that is not local."""
    kind, longest = b"", -1
    inside = root.rstrip(b"/") + b"/"
    for point, type, options in mounts:
        if point.startswith(inside) and point != root:
            return f"another file system is mounted inside, at '{os.fsdecode(point)}'"
        if type == b"overlay" and any(b"upperdir=" + at in options for at in (inside, root + b",")):
            return "a container writes into it"
        is_above = root == point or root.startswith(point.rstrip(b"/") + b"/")
        if is_above and len(point) >= longest:
            kind, longest = type, len(point)
    return (
        "" if kind in _FILE_SYSTEMS else f"changes on {os.fsdecode(kind) or 'an unknown file system'} are not all told"
    )


def _read_mounts(fd: int) -> list[Mount]:
    """Every mount that there is."""
    os.lseek(fd, 0, os.SEEK_SET)
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    found = []
    for line in b"".join(parts).splitlines():
        fields = line.split(b" ")
        if b"-" in fields[5:]:
            type_at = fields.index(b"-", 5) + 1
            found.append((plain(fields[4]), fields[type_at], plain(fields[-1]) + b","))
    return found


def _amount(follower: Follower) -> str:
    text = f"{follower.watches} watches"
    if follower.marks:
        text += f", {follower.marks} marks"
    return text + ", the rest is looked at" * follower.is_partial


def _allowed() -> int:
    try:
        with open(_LIMIT, "rb") as file:
            return int(file.read())
    except OSError:
        return 0
