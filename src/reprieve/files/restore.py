"""Move paths of the tree from what they are to what they should be: all of them, or none.

    check  ─▶  stage  ─▶  apply: remove (deepest first) ─▶ create, replace (parents first)  ─▶  settle: directories,
    nothing touched       each step verifies that it moved what it expected                     staging removed, sync

A path that is not what the plan expected (someone wrote it meanwhile) is left alone and named in `conflicts`. If a step
fails, the steps before it are taken back. If the process dies, `recover=True` finishes the same moves: a path that
already is what it should be is passed over, judged by content. Single steps are `steps`'s.
"""

from __future__ import annotations

import os
import stat

from reprieve.errors import Refused
from reprieve.files import afterwards, native, tree
from reprieve.files.beneath import Beneath, is_listed
from reprieve.files.content import Unstable
from reprieve.files.databases import begins_like_index, begins_like_one, find_databases, index_of, is_other_file
from reprieve.files.doors import Doors
from reprieve.files.gaps import gaps_of
from reprieve.files.graft import find_grafts, find_others, finish_folders
from reprieve.files.likeness import Likeness, content_of
from reprieve.files.live_sqlite import SUFFIXES
from reprieve.files.meta import adds_xattrs, is_dir, verify_times
from reprieve.files.preflight import find_obstacles
from reprieve.files.stage import Stage
from reprieve.files.steps import Steps, rescue
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.store.behind import Behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from reprieve.model.plan import Conflicted
    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import BlobStore, Buffer

    T = TypeVar("T")

_FEW = 8  # moves for which a thread costs more than it saves
_NAMED = 3  # paths in a sentence
_MANY = 500  # moves from which on it pays to do two things at once


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
        attic: str = "",
    ) -> None:
        self.attic = attic  # a directory outside of the tree, for what is not needed any more
        self.is_durable = is_durable  # a scratch copy need not survive a power cut
        self.moves = sorted(moves, key=lambda move: tree.sort_key(move[0]))
        self.index, self.recover, self.reporter = index, recover, reporter
        self.beneath = Beneath(root_fd)
        self.blobs, self.stage_name, self.cross_mounts = blobs, stage_name, cross_mounts
        self.stages: dict[int, Stage] = {}  # by device: a rename cannot leave its file system
        self._doors = Doors(self.beneath, index)
        self._likeness = Likeness(self.beneath, index, recover=recover)
        self._steps = Steps(self._doors, self._likeness, self._stage)
        self._grafts = [-1] * len(self.moves)  # for each move the number of the new directory that brings it along
        # hard-link group -> a path of it that is not moved, and what that is in the end
        self._members: dict[int, tuple[bytes, Entry]] | None = None
        self._staged = bytearray(len(self.moves))  # 1: a new file takes the place
        self._is_out = False  # the stage is no longer in the tree
        self._begun: set[bytes] = set()  # databases whose file and index are new, by the run that died
        self._foreign: set[bytes] = set()  # databases that somebody has written to since it died
        self._arrived: set[bytes] = set()  # parts of databases that are what they should be

    @property
    def done(self) -> set[bytes]:
        """Paths that are what they should be."""
        return self._steps.done

    @property
    def conflicts(self) -> list[Conflicted]:
        """What was left alone because somebody else had changed it."""
        return self._steps.conflicts

    def is_index(self, path: bytes) -> bool:
        """Whether it is the index of a database's log: whoever opens the database makes it again."""
        return self._steps.is_index(path)

    @property
    def lost(self) -> list[Gap]:
        """What could not be set."""
        return self._steps.lost

    @property
    def held(self) -> list[Gap]:
        """What was replaced or removed while a program has it open for writing, and which."""
        return self._steps.held

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

    def prefetch(self) -> None:
        """Have the store begin with the content that `prepare` will ask for; nothing is touched."""
        if len(self.moves) >= _MANY:
            return  # then the store itself does several things at once
        self.blobs.prefetch(
            after.content
            for _, before, after in self.moves
            if after is not None and after.kind == FILE and after.content and not after.is_chunked
            if before is None or before.same_bytes_key != after.same_bytes_key
        )

    def prepare(self) -> None:
        """Write all new content into the staging directory."""
        self._find_databases()
        self._doors.loosen(b"")
        self._doors.touched.add(b"")  # the staging directory comes and goes in the root
        self._stage(b"").expect(sum(after is not None and after.kind != DIR for _, _, after in self.moves))
        if self.recover:
            # the run that died may have touched any of these; their times and modes are set at the end
            self._doors.touched.update(tree.parent(path) for path, _, _ in self.moves)
        else:
            self._begin_grafts()
        for i, (path, before, after) in enumerate(self.moves):
            self._staged[i] = after is not None and self._needs_file(path, before, after)
        # by what the file is to be as well: two contents under one number must never become one file
        firsts: dict[tuple[int, object], int] = {}
        links: list[tuple[int, Entry]] = []
        by_stage: dict[Stage, list[int]] = {}  # numbers alone: there may be as many as files in the tree
        for i, (path, _, entry) in enumerate(self.moves):
            if not self._staged[i] or entry is None:
                continue
            if entry.link and ((entry.link, entry.same_file_key) in firsts or self._unmoved_member(entry)):
                links.append((i, entry))
            else:
                if entry.link:
                    firsts[entry.link, entry.same_file_key] = i
                by_stage.setdefault(self._stage(path), []).append(i)
        for stage, numbers in by_stage.items():
            stage.write(numbers, lambda i: self.moves[i][2])  # type: ignore[arg-type, return-value]
        for i, entry in links:
            stage = self._stage(self.moves[i][0])
            first = firsts.get((entry.link, entry.same_file_key))
            if first is not None:
                stage.link(i, *stage.at(first))
            else:
                stage.link(i, *self.beneath.at(self._unmoved_member(entry)))
        self._finish_grafts()
        for i in find_others(self.moves, self._grafts):
            self._stage(self.moves[i][0]).make_dir(i)

    def _find_databases(self) -> None:
        """Which moves are parts of one database (see `databases`); after a crash they are found in the same way.

        Each gets a new file, whether or not its bytes differ.
        """
        if not any(path.endswith(SUFFIXES) for path, _, _ in self.moves):
            return
        at = {path: (before, after) for path, before, after in self.moves}

        def is_one(path: bytes) -> bool:
            return any(begins_like_one(self.blobs, entry) for entry in reversed(at[path]))

        parts = find_databases(at, is_one)
        for path, database in tuple(parts.items()):
            if path == index_of(database) and not all(begins_like_index(self.blobs, entry) for entry in at[path]):
                del parts[path]  # a file that only has the name
        moved = {parts[path] for path in parts if path != index_of(parts[path]) and is_other_file(*at[path])}
        self._steps.parts = {path: database for path, database in parts.items() if database in moved}
        if self.recover:
            self._judge_databases(at)

    def _judge_databases(self, at: dict[bytes, tuple[Entry | None, Entry | None]]) -> None:
        """How far the run that died had come with each database, and whether somebody has written to it since.

        Its order was: index, file, logs. So if a log has moved, both are new already, and may be in use.
        """
        for path, database in self._steps.parts.items():
            before, after = at[path]
            if path == index_of(database):
                continue
            st = self.beneath.lstat(path)
            is_old = st is None if before is None else st is not None and self._likeness.has_content(path, st, before)
            is_new = st is None if after is None else st is not None and self._likeness.has_content(path, st, after)
            if is_new:
                self._arrived.add(path)
            if not is_old and not is_new:
                self._foreign.add(database)
            elif path != database and not is_old:
                self._begun.add(database)

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
        self._doors.settle(self._wanted())
        self.beneath.close()

    # -- acting

    def apply(self) -> None:
        """Carry the moves out. On failure they are taken back and the error is raised, with the path if it is one's."""
        at = b""
        early = {i for i, move in enumerate(self.moves) if not self._staged[i] and adds_xattrs(*move[1:])}
        try:
            # all that may find the disk full comes first: from then on everything can be taken back by moving
            for i in sorted(early):
                path, before, after = self.moves[i]
                at = path
                self._create(i, path, before, after)  # type: ignore[arg-type]
            plain = self._plain_steps()
            at = b""
            made = self._begin_databases(plain)
            made |= self._make([step for step in plain["trash"] if step[1] not in made])
            for i in range(len(self.moves) - 1, -1, -1):
                path, before, after = self.moves[i]
                if before is not None and (after is None or after.kind != before.kind) and i not in made:
                    at = path
                    self._steps.remove(path, before, after)
            at = b""
            rest = [step for step in plain["swap"] + plain["new"] if step[1] not in made]
            made |= early | self._make(rest) | self._keep_dirs()
            for i, (path, before, after) in enumerate(self.moves):
                top = self._grafts[i]
                if top >= 0 and top != i:
                    if self.moves[top][0] in self.done:
                        self.done.add(path)
                elif after is not None and i not in made and not self._steps.is_conflicted(path):
                    at = path
                    self._create(i, path, before, after)
            self._steps.keep_databases_whole(self._wanted_at)
        except OSError as error:
            error.filename = at or None
            self._steps.take_back(self.moves, error, self._clean_up)
            raise

    def _begin_databases(self, plain: dict[str, list[tuple[str, int, bytes]]]) -> set[int]:
        """The index of each database, then its file, before its logs: see `_judge_databases`. The moves made."""
        parts = self._steps.parts
        if not parts:
            return set()
        left = {i for i, move in enumerate(self.moves) if parts.get(move[0]) in self._foreign}
        for path, _, after in (self.moves[i] for i in left):
            if path in self._arrived:
                self.done.add(path)
            elif not self._steps.is_index(path):
                self._steps.skip(path, after)
        made = left | {i for i, move in enumerate(self.moves) if self._is_begun(move[0])}
        made |= self._make([step for step in plain["trash"] if self._steps.is_index(step[2]) and step[1] not in made])
        for i, (path, before, after) in enumerate(self.moves):
            if i not in made and before is not None and self._steps.is_index(path):
                self._steps.remove(path, before, after)
                made.add(i)
        made |= self._make([s for s in plain["swap"] + plain["new"] if parts.get(s[2]) == s[2] and s[1] not in made])
        for i, (path, before, after) in enumerate(self.moves):
            is_file = parts.get(path) == path and i not in made and self._staged[i] and self._grafts[i] < 0
            if is_file and before is not None and after is not None and before.kind == after.kind:
                self._create(i, path, before, after)
                made.add(i)
        return made

    def _is_begun(self, path: bytes) -> bool:
        """Whether it is the index of a database that is new already: then it is that one's."""
        return self._steps.is_index(path) and self._steps.parts[path] in self._begun

    def _plain_steps(self) -> dict[str, list[tuple[str, int, bytes]]]:
        """Steps that can be made many at once: files whose directory stays."""
        plain: dict[str, list[tuple[str, int, bytes]]] = {"trash": [], "swap": [], "new": []}
        if self.recover or self.cross_mounts:
            return plain
        fresh = {path for path, before, after in self.moves if is_dir(after) and not is_dir(before)}
        for i, (path, before, after) in enumerate(self.moves):
            if self._grafts[i] >= 0 or is_dir(before) or is_dir(after) or tree.parent(path) in fresh:
                continue
            what = "trash" if after is None else "new" if before is None else "swap"
            if after is None or (self._staged[i] and (before is None or before.kind == after.kind)):
                plain[what].append((what, i, path))
        return plain

    def _keep_dirs(self) -> set[int]:
        """Directories that only get another mode or time: `settle` does that, here they must be there."""
        if self.recover or self._steps.conflicts:
            return set()
        kept = {i: move[0] for i, move in enumerate(self.moves) if move[0] and is_dir(move[1]) and is_dir(move[2])}
        stats = native.stat_many(self.beneath.root_fd, kept.values())
        made = {i for i, st in zip(kept, stats, strict=True) if st is not None and stat.S_ISDIR(st[0])}
        for i in made:
            self.done.add(kept[i])
            self._doors.touched.add(kept[i])
        return made

    def _make(self, steps: list[tuple[str, int, bytes]]) -> set[int]:
        return self._steps.move_many(self._stage(b""), [s for s in steps if not self._steps.is_conflicted(s[2])])

    def _clean_up(self) -> None:
        """After everything was taken back; what somebody wrote into what had come back came along, and is kept."""
        for stage in self.stages.values():
            self._sweep(stage, is_taken_back=True)
        self.moves = [(path, before, before) for path, before, _ in self.moves]
        self._clear_stages()
        self._doors.settle(self._wanted())

    def settle(self, meanwhile: Callable[[], T]) -> T:
        """Final directory modes and times, staging removed, everything on disk; `meanwhile` may read the tree."""
        is_checked = is_left = False
        with Behind(in_thread=True, elsewhere=True) as ahead, Behind(in_thread=True, elsewhere=True) as behind:
            if _FEW < len(self.moves) < _MANY:
                # what was written is most of what there is to sync, and on its way while the rest is done
                ahead.start(self._sync, lambda _: None)
            try:
                self._steps.return_late_writes(self._wanted_at)
                is_checked = True
                self._say_what_is_shared()
                for gap in self.held:
                    self.reporter.warn(f"'{os.fsdecode(gap.path)}' is {gap.reason}")
                self._is_out = bool(self.attic) and all(stage.move_out(self.attic) for stage in self.stages.values())
                is_left = self._is_out and afterwards.leave(self._clear_stages)
                for stage in self.stages.values() if not is_left else ():
                    stage.start_clearing()
                self.lost.extend(self._doors.finish_many(self._moved_folders()))
                if not self._is_out:
                    self._clear_stages()
                self._doors.settle(self._wanted())
                ahead.wait()
                behind.start(self._sync, lambda _: None)
                is_corrected = verify_times(self.beneath, self.moves, self.done)
                result = meanwhile()
                behind.wait()
                if is_corrected:
                    self._sync()
            finally:
                # what is in the stage may be the only copy until late writes are out of it; then `recover` looks at it
                if is_checked and not is_left:
                    self._clear_stages()
        self.lost.extend(Gap(self.moves[i][0], s) for stage in self.stages.values() for i, s in stage.losses())
        self.beneath.close()
        return result

    def make_room(self) -> None:
        """Remove what was replaced, if that is out of the tree already; before the same is staged once more."""
        if self._is_out:
            self._clear_stages()

    def _wanted_at(self, path: bytes) -> Entry | None:
        """What a path that was moved should be."""
        return next((after for moved, _, after in self.moves if moved == path), None)

    def _moved_folders(self) -> list[tuple[bytes, Entry]]:
        """Directories that get another mode or time, deepest first."""
        found = []
        for i in range(len(self.moves) - 1, -1, -1):
            path, _, after = self.moves[i]
            is_settled = self._grafts[i] >= 0 and self._grafts[i] != i
            if path and after is not None and after.kind == DIR and path in self.done and not is_settled:
                found.append((path, after))
        return found

    def _say_what_is_shared(self) -> None:
        """A file that also has a name elsewhere is not written in place; so that name keeps what is taken back here."""
        shared = self._steps.shared
        if shared:
            names = ", ".join(os.fsdecode(path) for path in shared[:_NAMED]) + (", …" if len(shared) > _NAMED else "")
            count = "1 file has" if len(shared) == 1 else f"{len(shared)} files have"
            self.reporter.warn(f"{count} another name outside of the folder, which keeps what was here: {names}")

    def _sync(self) -> None:
        if self.is_durable:
            native.syncfs(self.beneath.root_fd)

    def _wanted(self) -> dict[bytes, Entry | None]:
        """What the directories in which names changed should be, where they were moved themselves."""
        touched, done = self._doors.touched, self.done
        return {path: after for path, _, after in self.moves if path in touched and path in done}

    def _create(self, i: int, path: bytes, before: Entry | None, after: Entry) -> None:
        steps, st = self._steps, self.beneath.lstat(path)
        if self._grafts[i] == i:
            steps.place(i, path)
            self._doors.touched.add(path)
        elif after.kind == DIR:
            steps.make_dir(i, path, st, after)
        elif not self._staged[i]:
            steps.change_meta(path, st, before, after)
        elif st is None or (before is None and not is_listed(*self.beneath.at(path))):
            steps.place(i, path)
        elif self.recover and self._likeness.has_content(path, st, after):
            if after.link or (path in steps.parts and steps.parts[path] not in self._begun):
                steps.replace(i, path, st, after)  # whether it is one file with its group, or a new one, is not known
            else:
                self.done.add(path)
        elif before is None or before.kind != after.kind or not self._likeness.is_expected(path, st, before):
            steps.skip(path, after)
        else:
            steps.replace(i, path, st, after)

    def _needs_file(self, path: bytes, before: Entry | None, after: Entry) -> bool:
        """Whether a new file takes the place (else only owner, mode, xattrs or times change)."""
        if after.kind == DIR:
            return False
        if before is None or before.kind != after.kind or before.same_bytes_key != after.same_bytes_key:
            return True
        if before.link != after.link or path in self._steps.parts:
            return True
        # a file that is also linked from outside the tree must not be changed in place
        st = self.beneath.lstat(path)
        return st is not None and after.kind == FILE and st.st_nlink > self._steps.names(after.link)

    def _unmoved_member(self, wanted: Entry) -> bytes:
        """A path of the entry's hard-link group that stays and is, or becomes, what it is; b"" if there is none."""
        if self._members is None:
            moved = {path for i, (path, _, after) in enumerate(self.moves) if after is None or self._staged[i]}
            in_place = {path: after for path, _, after in self.moves if after is not None and path not in moved}
            self._members = {}
            # what is in a directory that could not be looked at may be anything by now
            hidden = {gap.path for gap in gaps_of(self.index)}
            n = tree.count(self.index)
            rows = memoryview(self.index)[tree.HEADER.size : tree.HEADER.size + n * tree.ROW.size]
            for row, number in enumerate(rows.cast("Q")[10 :: tree.ROW.size // 8]):
                if not number or number in self._members:
                    continue
                path, entry = tree.entry_at(self.index, row)
                if path not in moved and hidden.isdisjoint((path, *tree.ancestors(path))):
                    self._members[number] = path, in_place.get(path, entry)
        path, there = self._members.get(wanted.link, (b"", wanted))
        return path if there.same_file_key == wanted.same_file_key else b""

    def _sweep(self, stage: Stage, *, is_taken_back: bool = False) -> None:
        """What lies in the stage is captured content, or somebody's (written late, put there), which is kept.

        `is_taken_back`: directories in it were in the tree for a while.
        """
        entries = [e for _, before, after in self.moves for e in (before, after) if e is not None]
        known, targets = {e.content for e in entries}, {e.target for e in entries}
        for name in map(os.fsencode, stage.names()):
            is_ours = _has_only_ours if is_taken_back and name.startswith(b"d") else _is_ours
            if is_ours(stage.fd, name, known, targets):
                stage.remove(name)
            else:
                saved = rescue(stage, stage.fd, name)
                self.reporter.warn(f"a file that was written during the rollback was saved as {saved}")

    def _stage(self, path: bytes) -> Stage:
        """The staging directory on the file system where path is or will be."""
        top = self._mount_of(path) if self.cross_mounts and path else b""
        dev = os.fstat(self.beneath.dir(top)).st_dev if top else 0
        stage = self.stages.get(dev)
        if stage is None:
            stage = self.stages[dev] = Stage(os.dup(self.beneath.dir(top)), self.stage_name, self.blobs, self.reporter)
            self._doors.touched.add(top)
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


def _has_only_ours(dir_fd: int, name: bytes, known: set[bytes], targets: set[bytes]) -> bool:
    """The same for a directory that was in the tree, with all that is in it."""
    try:
        for _, _, files, fd in os.fwalk(os.fsdecode(name), dir_fd=dir_fd, onerror=_raise):
            if not all(_is_captured(fd, os.fsencode(file), known, targets) for file in files):
                return False
    except (OSError, RecursionError):
        return False
    return True


def _raise(error: OSError) -> None:
    raise error


def _is_ours(dir_fd: int, name: bytes, known: set[bytes], targets: set[bytes]) -> bool:
    """Whether what has this name in the stage can go: captured, or staged and not whole."""
    if name.startswith(b"d"):
        return True  # a room, or a directory that was being made
    st = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    # what is being staged has no rights before it is whole
    is_half = stat.S_ISREG(st.st_mode) and name.startswith(b"n") and not stat.S_IMODE(st.st_mode)
    return is_half or _is_captured(dir_fd, name, known, targets)


def _is_captured(dir_fd: int, name: bytes, known: set[bytes], targets: set[bytes]) -> bool:
    st = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if stat.S_ISLNK(st.st_mode):
        return os.readlink(name, dir_fd=dir_fd) in targets
    if not stat.S_ISREG(st.st_mode):
        return not stat.S_ISDIR(st.st_mode)
    try:
        return not st.st_size or content_of(dir_fd, name) in known
    except (Unstable, PermissionError):
        return False
