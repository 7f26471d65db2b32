"""Move paths of the tree from what they are to what they should be: all of them, or none.

    check  ─▶  stage  ─▶  apply: remove (deepest first) ─▶ create, replace (parents first)  ─▶  settle: directories,
    nothing touched       each step verifies that it moved what it expected                     staging removed, sync

A path that is not what the plan expected (someone wrote it meanwhile) is left alone and named in `conflicts`. If a step
fails, the steps before it are taken back. If the process dies, `recover=True` finishes the same moves: a path that
already is what it should be is passed over, judged by content.
"""

from __future__ import annotations

import errno
import os
import stat

from reprieve.errors import Partial, Refused
from reprieve.files import native, tree
from reprieve.files.behind import Behind
from reprieve.files.beneath import Beneath, is_listed
from reprieve.files.content import Unstable, capture
from reprieve.files.graft import find_grafts, find_others, finish_folders
from reprieve.files.links import count_names
from reprieve.files.meta import adds_xattrs, file_type, loosen, set_meta, set_open, set_times, verify_times
from reprieve.files.preflight import find_obstacles
from reprieve.files.stage import Stage
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, FILE, SYMLINK, Entry
from reprieve.model.plan import Conflicted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import BlobStore, Buffer

    T = TypeVar("T")

_NOREPLACE, _EXCHANGE = 1, 2
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_MANY = 500  # moves from which on it pays to do two things at once
_CHANGED = "changed by someone else while the rollback ran"


class Restore:
    """One run over `moves` [(path, before, after)]; `index` is the tree as the safety checkpoint saw it."""

    def __init__(
        self,
        root_fd: int,
        moves: tree.Delta,
        *,
        index: Buffer,
        blobs: BlobStore,
        stage_name: bytes,
        reporter: Reporter,
        recover: bool = False,
        cross_mounts: bool = False,
        is_durable: bool = True,
    ) -> None:
        self.is_durable = is_durable  # a scratch copy need not survive a power cut
        self.moves = sorted(moves, key=lambda move: tree.sort_key(move[0]))
        self.index, self.recover, self.reporter = index, recover, reporter
        self.beneath = Beneath(root_fd)
        self.blobs, self.stage_name, self.cross_mounts = blobs, stage_name, cross_mounts
        self.stages: dict[int, Stage] = {}  # by device: a rename cannot leave its file system
        self.conflicts: list[Conflicted] = []
        self.lost: list[Gap] = []
        self.done: set[bytes] = set()
        self._grafts = [-1] * len(self.moves)  # for each move the number of the new directory that brings it along
        self._members: dict[int, bytes] | None = None  # hard-link group -> a path of it that is not moved
        self._counts: dict[int, int] | None = None  # hard-link group -> names in the tree
        self._staged = bytearray(len(self.moves))  # 1: a new file takes the place
        self._steps: list[tuple[str, bytes, bytes, Stage]] = []  # (what, path, name in the stage), to take back
        self._touched: set[bytes] = set()  # directories in which names changed
        self._loosened: set[bytes] = set()  # directories in which names may change
        self._trash: list[tuple[Stage, bytes, bytes]] = []  # (stage, name in it, path that it came from)

    # -- before anything is touched

    def check(self) -> None:
        """Raises Refused naming every path that could not be moved."""
        obstacles = find_obstacles(self.beneath, self.moves)
        if obstacles:
            raise Refused(
                f"{len(obstacles)} paths cannot be changed; nothing was touched",
                details=[f"{os.fsdecode(gap.path)}  {gap.reason}" for gap in obstacles],
                hints=["make them changeable, or leave them out: reprieve rollback REF --only PATH"],
                data={"paths": [os.fsdecode(gap.path) for gap in obstacles]},
            )

    def prepare(self) -> None:
        """Write all new content into the staging directory."""
        self._loosen(b"")
        self._touched.add(b"")  # the staging directory comes and goes in the root
        self._stage(b"").expect(sum(after is not None and after.kind != DIR for _, _, after in self.moves))
        if self.recover:
            # the run that died may have touched any of these; their times and modes are set at the end
            self._touched.update(tree.parent(path) for path, _, _ in self.moves)
        else:
            self._begin_grafts()
        wanted = [
            (i, after)
            for i, (path, before, after) in enumerate(self.moves)
            if after is not None and self._needs_file(path, before, after)
        ]
        for i, _ in wanted:
            self._staged[i] = 1
        firsts: dict[int, int] = {}
        alone: list[tuple[int, Entry]] = []
        links: list[tuple[int, Entry]] = []
        for i, entry in wanted:
            if entry.link and (entry.link in firsts or self._unmoved_member(entry)):
                links.append((i, entry))
            else:
                if entry.link:
                    firsts[entry.link] = i
                alone.append((i, entry))
        by_stage: dict[Stage, list[tuple[int, Entry]]] = {}
        for i, entry in alone:
            by_stage.setdefault(self._stage(self.moves[i][0]), []).append((i, entry))
        for stage, files in by_stage.items():
            stage.write(files)
        for i, entry in links:
            stage = self._stage(self.moves[i][0])
            if entry.link in firsts:
                stage.link(i, *stage.at(firsts[entry.link]))
            else:
                stage.link(i, *self.beneath.at(self._unmoved_member(entry)))
        self._finish_grafts()
        for i in find_others(self.moves, self._grafts):
            self._stage(self.moves[i][0]).make_dir(i)

    def _begin_grafts(self) -> None:
        """Make the new directories in the stage, so that their content is written where it belongs."""
        self._grafts = find_grafts(self.moves)
        folders: dict[Stage, list[int]] = {}
        for i, top in enumerate(self._grafts):
            after = self.moves[i][2]
            if top >= 0 and after is not None and after.kind == DIR:
                folders.setdefault(self._stage(self.moves[top][0]), []).append(i)
        for stage, numbers in folders.items():
            stage.make_folders(numbers)

    def _finish_grafts(self) -> None:
        """All but the topmost ones: a directory that is not writable can't be moved to another parent."""
        folders: dict[Stage, list[tuple[int, Entry]]] = {}
        for i, top in enumerate(self._grafts):
            after = self.moves[i][2]
            if top >= 0 and i != top and after is not None and after.kind == DIR:
                folders.setdefault(self._stage(self.moves[top][0]), []).append((i, after))
        for stage, wanted in folders.items():
            finish_folders(stage, wanted)

    def cancel(self) -> None:
        """Remove the staging directory; nothing else was touched."""
        self._clear_stages()
        self._settle_directories()
        self.beneath.close()

    # -- acting

    def apply(self) -> None:
        """Carry the moves out. On failure they are taken back and the error is raised."""
        early = {i for i, move in enumerate(self.moves) if not self._staged[i] and adds_xattrs(*move[1:])}
        try:
            # all that may find the disk full comes first: from then on everything can be taken back by moving
            for i in sorted(early):
                path, before, after = self.moves[i]
                self._create(i, path, before, after)  # type: ignore[arg-type]
            for i in range(len(self.moves) - 1, -1, -1):
                path, before, after = self.moves[i]
                if before is not None and (after is None or after.kind != before.kind):
                    self._remove(path, before, after)
            for i, (path, before, after) in enumerate(self.moves):
                top = self._grafts[i]
                if top >= 0 and top != i:
                    if self.moves[top][0] in self.done:
                        self.done.add(path)
                elif after is not None and i not in early and not self._is_conflicted(path):
                    self._create(i, path, before, after)
        except OSError as error:
            self._take_back(error)
            raise

    def settle(self, meanwhile: Callable[[], T]) -> T:
        """Final directory modes and times, staging removed, everything on disk; `meanwhile` may read the tree."""
        self._return_late_writes()
        for stage in self.stages.values():
            stage.start_clearing()
        try:
            for i in range(len(self.moves) - 1, -1, -1):
                path, _, after = self.moves[i]
                is_settled = self._grafts[i] >= 0 and self._grafts[i] != i
                if path and after is not None and after.kind == DIR and path in self.done and not is_settled:
                    self._settle_dir(path, after)
            self._settle_directories(leave={b""})
        finally:
            self._clear_stages()
        self.lost += [Gap(self.moves[i][0], s) for stage in self.stages.values() for i, s in stage.losses()]
        self._settle_directories()
        behind = Behind(in_thread=len(self.moves) >= _MANY)
        try:
            if self.is_durable:
                behind.start(lambda: native.syncfs(self.beneath.root_fd), lambda _: None)
            is_corrected = verify_times(self.beneath, self.moves, self.done)
            result = meanwhile()
        finally:
            behind.wait()
        if is_corrected and self.is_durable:
            native.syncfs(self.beneath.root_fd)
        self.beneath.close()
        return result

    def _remove(self, path: bytes, before: Entry, after: Entry | None) -> None:
        try:
            st = self.beneath.lstat(path)
        except PermissionError:
            self._open_up(path)
            st = self.beneath.lstat(path)
        if st is None:
            self.done.add(path)
            return
        if self.recover and after is not None and stat.S_IFMT(st.st_mode) == file_type(after.kind):
            return  # the run that died had come further than this
        fd, name = self._parent(path)
        if before.kind == DIR:
            if not stat.S_ISDIR(st.st_mode):
                self._skip(path, st, before)
                return
            self.beneath.forget(path)
            try:
                os.rmdir(name, dir_fd=fd)
            except OSError as e:
                if e.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    raise
                reason = "holds something that the rollback must not remove"
                self.conflicts.append(Conflicted(path, reason, current=before))
                return
            self._steps.append(("rmdir", path, b"", self._stage(b"")))
            self.done.add(path)
            return
        if not self._is_expected(path, st, before):
            self._skip(path, st, before)
            return
        stage = self._stage(path)
        trash = stage.trash_name()
        self._move(fd, name, stage.fd, trash)
        self._steps.append(("trash", path, trash, stage))
        if not _came_out(stage, trash, st):
            self._move(stage.fd, trash, fd, name)
            self._steps.pop()
            self._skip(path, st, before)
            return
        self._trash.append((stage, trash, path))
        self.done.add(path)

    def _create(self, i: int, path: bytes, before: Entry | None, after: Entry) -> None:
        st = self.beneath.lstat(path)
        if self._grafts[i] == i:
            self._place(i, path)
            self._touched.add(path)
        elif after.kind == DIR:
            self._create_dir(i, path, st, after)
        elif not self._staged[i]:
            self._change_meta(path, st, before, after)
        elif st is None or (before is None and not is_listed(*self.beneath.at(path))):
            self._place(i, path)
        elif self.recover and not after.link and self._has_content(path, st, after):
            self.done.add(path)
        elif self.recover and after.link and self._has_content(path, st, after):
            self._replace(i, path, st, after)  # its bytes are right; whether it is one file with its group is not known
        elif before is None or before.kind != after.kind or not self._is_expected(path, st, before):
            self._skip(path, st, after)
        else:
            self._replace(i, path, st, after)

    def _create_dir(self, i: int, path: bytes, st: os.stat_result | None, after: Entry) -> None:
        if st is None:
            fd, name = self._parent(path)
            self._move(self._stage(path).fd, b"d%d" % i, fd, name)
            self._steps.append(("mkdir", path, b"", self._stage(b"")))
        elif not stat.S_ISDIR(st.st_mode):
            self._skip(path, st, after)
            return
        self.done.add(path)
        self._touched.add(path)

    def _change_meta(self, path: bytes, st: os.stat_result | None, before: Entry | None, after: Entry) -> None:
        if st is None or before is None or not (self.recover or self._is_expected(path, st, before)):
            self._skip(path, st, after)
            return
        self._steps.append(("meta", path, b"", self._stage(b"")))
        fd, name = self.beneath.at(path)
        reasons: list[str] = []
        set_meta(fd, name, after, lost=reasons)
        self.lost += [Gap(path, reason) for reason in reasons]
        self.done.add(path)

    def _place(self, i: int, path: bytes) -> None:
        fd, name = self._parent(path)
        stage = self._stage(path)
        staged = stage.place(i)
        try:
            self._move(*stage.spot(staged), fd, name)
        except FileExistsError:
            self._skip(path, None, None)
            return
        self._steps.append(("new", path, staged, stage))
        self.done.add(path)

    def _replace(self, i: int, path: bytes, st: os.stat_result, after: Entry) -> None:
        fd, name = self._parent(path)
        stage = self._stage(path)
        staged = stage.place(i)
        try:
            native.rename2(*stage.spot(staged), fd, name, _EXCHANGE)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            # no exchange on this file system: move the old one away first
            trash = stage.trash_name()
            self._move(fd, name, stage.fd, trash)
            self._steps.append(("trash", path, trash, stage))
            if not _came_out(stage, trash, st):
                self._move(stage.fd, trash, fd, name)
                self._steps.pop()
                self._skip(path, st, after)
                return
            self._trash.append((stage, trash, path))
            self._place(i, path)
            return
        self._steps.append(("swap", path, staged, stage))
        if not _came_out(stage, staged, st):
            native.rename2(*stage.spot(staged), fd, name, _EXCHANGE)
            self._steps.pop()
            self._skip(path, st, after)
            return
        self._trash.append((stage, staged, path))
        self.done.add(path)

    # -- is it what we think it is

    def _is_expected(self, path: bytes, st: os.stat_result, before: Entry) -> bool:
        if self.recover:
            return self._has_content(path, st, before)
        row = native.find(self.index, path)
        if row < 0:
            return False
        _, entry = tree.entry_at(self.index, row)
        known = tree.stat_at(self.index, row)
        if known.ino != st.st_ino or stat.S_IFMT(st.st_mode) != file_type(entry.kind):
            return False
        if entry.kind == FILE and entry.size != st.st_size:
            return False
        if known.nlink > 1:
            # moving one name of a file changes the ctime under all its names
            return entry.mtime_s * 1_000_000_000 + entry.mtime_ns == st.st_mtime_ns
        return (known.ctime_s, known.ctime_ns) == divmod(st.st_ctime_ns, 1_000_000_000)

    def _has_content(self, path: bytes, st: os.stat_result, entry: Entry) -> bool:
        if stat.S_IFMT(st.st_mode) != file_type(entry.kind):
            return False
        fd, name = self.beneath.at(path)
        if entry.kind == SYMLINK:
            return os.readlink(name, dir_fd=fd) == entry.target
        if entry.kind != FILE:
            return True
        if st.st_size != entry.size:
            return False
        file = os.open(name, _READ, dir_fd=fd)
        try:
            return capture(file, lambda items: 0).content == entry.content
        except Unstable:
            return False
        finally:
            os.close(file)

    def _needs_file(self, path: bytes, before: Entry | None, after: Entry) -> bool:
        """Whether a new file takes the place (else only owner, mode, xattrs or times change)."""
        if after.kind == DIR:
            return False
        if before is None or before.kind != after.kind or before.same_bytes_key != after.same_bytes_key:
            return True
        if before.link != after.link:
            return True
        # a file that is also linked from outside the tree must not be changed in place
        st = self.beneath.lstat(path)
        return st is not None and after.kind == FILE and st.st_nlink > self._names(after.link)

    def _names(self, link: int) -> int:
        """How many names of a hard-link group are in the tree; a file without a group has one."""
        if self._counts is None:
            self._counts = count_names(self.index)
        return self._counts.get(link, 0) if link else 1

    def _unmoved_member(self, wanted: Entry) -> bytes:
        """A path of the entry's hard-link group that stays and has its content, b"" if there is none."""
        if self._members is None:
            moved = {path for i, (path, _, after) in enumerate(self.moves) if after is None or self._staged[i]}
            self._members = {}
            n = tree.count(self.index)
            rows = memoryview(self.index)[tree.HEADER.size : tree.HEADER.size + n * tree.ROW.size]
            for row, number in enumerate(rows.cast("Q")[10 :: tree.ROW.size // 8]):
                if number and (path := native.get(self.index, row)[0]) not in moved:
                    self._members.setdefault(number, path)
        path = self._members.get(wanted.link, b"")
        there = tree.lookup(self.index, path) if path else None
        return path if there is not None and there.same_bytes_key == wanted.same_bytes_key else b""

    # -- book-keeping

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        above = tree.parent(path)
        self._loosen(above)
        self._touched.add(above)
        return self.beneath.at(path)

    def _loosen(self, path: bytes) -> None:
        if path not in self._loosened:
            self._loosened.add(path)
            if loosen(self.beneath.dir(path)):
                self._touched.add(path)

    def _open_up(self, path: bytes) -> None:
        """Give ourselves the right to enter the directories above path, outermost first."""
        for above in reversed(list(tree.ancestors(path))):
            fd, name = self.beneath.at(above)
            door = os.open(name, _PATH_ONLY, dir_fd=fd)
            try:
                if loosen(door):
                    self._touched.add(above)
            finally:
                os.close(door)

    def _skip(self, path: bytes, st: os.stat_result | None, wanted: Entry | None) -> None:
        self.conflicts.append(Conflicted(path, _CHANGED, wanted=wanted))

    def _is_conflicted(self, path: bytes) -> bool:
        if not self.conflicts:
            return False
        bad = {c.path for c in self.conflicts}
        return path in bad or any(above in bad for above in tree.ancestors(path))

    def _move(self, from_fd: int, old: bytes, to_fd: int, new: bytes) -> None:
        try:
            native.rename2(from_fd, old, to_fd, new, _NOREPLACE)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            if is_listed(to_fd, new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
            os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def _return_late_writes(self) -> None:
        """A program may hold a replaced file open and write on: such a file goes back to its place and is named."""
        for stage, name, path in self._trash:
            from_fd, last_name = stage.spot(name)
            st = os.stat(last_name, dir_fd=from_fd, follow_symlinks=False)
            row = native.find(self.index, path)
            if row < 0 or not stat.S_ISREG(st.st_mode) or self.recover:
                continue
            _, entry = tree.entry_at(self.index, row)
            if (st.st_size, st.st_mtime_ns) == (entry.size, entry.mtime_s * 1_000_000_000 + entry.mtime_ns):
                continue
            try:
                fd, last = self._parent(path)
            except OSError:
                rescued = b"reprieve-rescued-" + last_name
                self._move(from_fd, last_name, stage.root_fd, rescued)
                self.conflicts.append(Conflicted(path, f"written late; saved as {rescued.decode()}"))
                continue
            if self.beneath.lstat(path) is None:
                self._move(from_fd, last_name, fd, last)
            else:
                native.rename2(from_fd, last_name, fd, last, _EXCHANGE)
            self.done.discard(path)
            self.conflicts.append(Conflicted(path, "still being written by a program; left as it is"))

    def _sweep(self, stage: Stage) -> None:
        """After a crash: what lies in the stage is captured content, or a file that was written late (kept)."""
        known = {e.content for _, before, after in self.moves for e in (before, after) if e is not None}
        for name in map(os.fsencode, stage.names()):
            st = os.stat(name, dir_fd=stage.fd, follow_symlinks=False)
            if stat.S_ISREG(st.st_mode) and st.st_size and name.startswith(b"t"):
                fd = os.open(name, _READ, dir_fd=stage.fd)
                try:
                    content = capture(fd, lambda items: 0).content
                finally:
                    os.close(fd)
                if content not in known:
                    rescued = b"reprieve-rescued-" + stage.name.lstrip(b".") + b"-" + name
                    self._move(stage.fd, name, stage.root_fd, rescued)
                    self.reporter.warn(f"a file that was written during the rollback was saved as {rescued.decode()}")
                    continue
            stage.remove(name)

    def _stage(self, path: bytes) -> Stage:
        """The staging directory on the file system where path is or will be."""
        top = self._mount_of(path) if self.cross_mounts and path else b""
        dev = os.fstat(self.beneath.dir(top)).st_dev if top else 0
        stage = self.stages.get(dev)
        if stage is None:
            stage = self.stages[dev] = Stage(os.dup(self.beneath.dir(top)), self.stage_name, self.blobs, self.reporter)
            self._touched.add(top)
            stage.below = self._below
            stage.open()
            if self.recover:
                self._sweep(stage)
        return stage

    def _below(self, i: int) -> bytes:
        """Where in the stage a move is prepared that comes with a new directory; b"" for all others."""
        top = self._grafts[i]
        return b"d%d" % top + self.moves[i][0][len(self.moves[top][0]) :] if top >= 0 else b""

    def _mount_of(self, path: bytes) -> bytes:
        """The topmost directory of the tree on path's file system; b"" if that is the root's."""
        root_dev = os.fstat(self.beneath.root_fd).st_dev
        found, dev = b"", root_dev
        for above in tree.ancestors(path):
            st = self.beneath.lstat(above)
            if st is None:
                continue
            if dev == root_dev and st.st_dev != root_dev:
                dev = st.st_dev
            if dev == root_dev or st.st_dev != dev:
                break
            found = above
        return found

    def _clear_stages(self) -> None:
        for stage in self.stages.values():
            stage.clear()
            if stage.root_fd >= 0:
                os.close(stage.root_fd)
                stage.root_fd = -1

    def _settle_dir(self, path: bytes, entry: Entry) -> None:
        reasons: list[str] = []
        set_open(self.beneath.dir(path), entry, lost=reasons, times=True)
        self._touched.discard(path)
        self.lost += [Gap(path, reason) for reason in reasons]

    def _settle_directories(self, leave: frozenset[bytes] | set[bytes] = frozenset()) -> None:
        """Directories in which names changed get back the mode and time that they had, or should have."""
        wanted = {path: after for path, _, after in self.moves if path in self.done}
        for path in sorted(self._touched - leave, key=tree.sort_key, reverse=True):
            entry = wanted[path] if path in wanted else tree.lookup(self.index, path)
            if entry is None or entry.kind != DIR or entry.gap:
                continue
            st = self.beneath.lstat(path)
            if st is None or not stat.S_ISDIR(st.st_mode):
                continue
            fd = self.beneath.dir(path)
            if path in wanted or stat.S_IMODE(st.st_mode) != entry.mode:
                reasons: list[str] = []
                set_open(fd, entry, lost=reasons)
            set_times(fd, entry)

    def _take_back(self, error: OSError) -> None:
        """Undo the steps made so far, newest first. Raises Partial if that fails as well."""
        befores = {path: before for path, before, _ in self.moves}
        try:
            for what, path, name, stage in reversed(self._steps):
                fd, last = self.beneath.at(path)
                if what == "swap":
                    native.rename2(*stage.spot(name), fd, last, _EXCHANGE)
                elif what == "trash":
                    self._move(stage.fd, name, fd, last)
                elif what == "new":
                    self._move(fd, last, *stage.spot(name))
                elif what == "mkdir":
                    self.beneath.forget(path)
                    os.rmdir(last, dir_fd=fd)
                elif what == "rmdir":
                    os.mkdir(last, 0o700, dir_fd=fd)
                    self._touched.add(path)
                before = befores[path]
                if what in ("meta", "rmdir") and before is not None:
                    set_meta(fd, last, before, lost=[])
            self.done.clear()
            self.moves = [(path, before, before) for path, before, _ in self.moves]
            self._clear_stages()
            self._settle_directories()
        except OSError as second:
            raise Partial(
                f"the rollback stopped half-way ({error.strerror}) and could not be taken back ({second.strerror})",
                hints=["free some space or rights, then run any reprieve command here: it finishes the rollback first"],
            ) from error


def _came_out(stage: Stage, name: bytes, st: os.stat_result) -> bool:
    """Whether what was moved into the stage is what was looked at; its ctime moved with it."""
    fd, last = stage.spot(name)
    now = os.stat(last, dir_fd=fd, follow_symlinks=False)
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (st.st_ino, st.st_size, st.st_mtime_ns)
