"""The steps of a restore in the tree: each verifies that it moved what it expected, and each can be taken back.

    remove   out of the tree, into the stage          new     out of the stage, where nothing is
    replace  both at once (exchange)                  meta    owner, mode, xattrs, times in place

Nothing here knows in which order steps are made: that is `restore`'s.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import count, groupby

from reprieve.errors import Partial
from reprieve.files import native, tree
from reprieve.files.beneath import is_listed
from reprieve.files.databases import index_of
from reprieve.files.likeness import has_bytes
from reprieve.files.links import count_names
from reprieve.files.meta import file_type, set_meta
from reprieve.files.processes import find_writers
from reprieve.model.change import Gap
from reprieve.model.entry import DIR, FILE, Entry
from reprieve.model.plan import Conflicted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.files.doors import Doors
    from reprieve.files.likeness import Likeness
    from reprieve.files.stage import Stage

    Trash = tuple[Stage, bytes, bytes]  # (stage, name in it, path that it came from)
    Held = tuple[Trash, tuple[int, int], bool]  # (what, its device and inode, whether somebody surely has it open)

_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_CODES = {"swap": 0, "trash": 1, "new": 2}  # as native.move_many wants them
_NOTHING = (0, 0, -1, 0, 0, 0, -1)
_AT_ONCE = 32  # files that are opened at the same time
_CHANGED = "changed by someone else while the rollback ran"
_WRITTEN = "still being written by a program; left as it is"


class Steps:
    """What was done to the tree so far: `done` paths, `conflicts` with somebody else, `lost` attributes."""

    def __init__(self, doors: Doors, likeness: Likeness, stage_of: Callable[[bytes], Stage]) -> None:
        self.doors, self.likeness, self.stage_of = doors, likeness, stage_of
        self.beneath, self.index, self.recover = doors.beneath, likeness.index, likeness.recover
        self.done: set[bytes] = set()
        self.conflicts: list[Conflicted] = []
        self.lost: list[Gap] = []
        self.shared: list[bytes] = []  # what was taken out and has another name outside of the tree
        self.held: list[Gap] = []  # what was taken out while a program has it open for writing
        self.parts: dict[bytes, bytes] = {}  # of databases: each path → its database; they move all, or none
        self._made: list[tuple[str, bytes, bytes, Stage]] = []  # (what, path, name in the stage), to take back
        self._counts: dict[int, int] | None = None  # hard-link group -> names in the tree
        self._trash: list[Trash] = []
        self._shown: list[Trash] = []  # ours: stood at its path, if only for an instant, and was taken away again

    def remove(self, path: bytes, before: Entry, after: Entry | None) -> None:
        """Take what is at path out of the tree."""
        try:
            st = self.beneath.lstat(path)
        except PermissionError:
            self.doors.open_up(path)
            st = self.beneath.lstat(path)
        if st is None:
            self.done.add(path)
            return
        if self.recover and after is not None and stat.S_IFMT(st.st_mode) == file_type(after.kind):
            return  # the run that died had come further than this
        if before.kind == DIR:
            self._remove_dir(path, st, before)
            return
        is_known = stat.S_ISREG(st.st_mode) if self.is_index(path) else self.likeness.is_expected(path, st, before)
        if not is_known:
            self.skip(path, before)
            return
        if self._put_away(path, st, before):
            self.done.add(path)

    def _remove_dir(self, path: bytes, st: os.stat_result, before: Entry) -> None:
        fd, name = self.doors.parent(path)
        if not stat.S_ISDIR(st.st_mode):
            self.skip(path, before)
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
        self._made.append(("rmdir", path, b"", self.stage_of(b"")))
        self.done.add(path)

    def _put_away(self, path: bytes, st: os.stat_result, wanted: Entry | None) -> bool:
        """Move it into the stage; False if that was not what had been looked at, which is then where it was."""
        fd, name = self.doors.parent(path)
        stage = self.stage_of(path)
        trash = stage.trash_name()
        move(fd, name, stage.fd, trash)
        self._made.append(("trash", path, trash, stage))
        # whoever reads the database writes its index, through a mapping: it has the times of any moment
        if not _came_out(stage, trash, st, is_any=self.is_index(path)):
            move(stage.fd, trash, fd, name)
            self._made.pop()
            self.skip(path, wanted)
            return False
        self._trash.append((stage, trash, path))
        return True

    def make_dir(self, i: int, path: bytes, st: os.stat_result | None, after: Entry) -> None:
        """Have a directory at path; d{i} of the stage if there is none."""
        if st is None:
            fd, name = self.doors.parent(path)
            move(self.stage_of(path).fd, b"d%d" % i, fd, name)
            self._made.append(("mkdir", path, b"", self.stage_of(b"")))
        elif not stat.S_ISDIR(st.st_mode):
            self.skip(path, after)
            return
        self.done.add(path)
        self.doors.touched.add(path)

    def change_meta(self, path: bytes, st: os.stat_result | None, before: Entry | None, after: Entry) -> None:
        """Owner, mode, xattrs and times only."""
        if st is None or before is None or not (self.recover or self.likeness.is_expected(path, st, before)):
            self.skip(path, after)
            return
        self._made.append(("meta", path, b"", self.stage_of(b"")))
        fd, name = self.beneath.at(path)
        reasons: list[str] = []
        self.likeness.gave(st, after)
        set_meta(fd, name, after, lost=reasons)
        self.lost += [Gap(path, reason) for reason in reasons]
        self.done.add(path)

    def place(self, i: int, path: bytes) -> None:
        """Move what is staged to where nothing is."""
        fd, name = self.doors.parent(path)
        stage = self.stage_of(path)
        staged = stage.place(i)
        try:
            move(*stage.spot(staged), fd, name)
        except FileExistsError:
            self.skip(path, None)
            return
        self._made.append(("new", path, staged, stage))
        self.done.add(path)

    def replace(self, i: int, path: bytes, st: os.stat_result, after: Entry) -> None:
        """Let what is staged change places with what is there, which was looked at as `st`."""
        fd, name = self.doors.parent(path)
        stage = self.stage_of(path)
        staged = stage.place(i)
        try:
            native.rename2(*stage.spot(staged), fd, name, _EXCHANGE)
        except OSError as e:
            if e.errno not in _UNSUPPORTED:
                raise
            # no exchange on this file system: move the old one away first
            if self._put_away(path, st, after):
                self.place(i, path)
            return
        self._made.append(("swap", path, staged, stage))
        if not _came_out(stage, staged, st):
            native.rename2(*stage.spot(staged), fd, name, _EXCHANGE)
            self._made.pop()
            self._shown.append((stage, staged, path))
            self.skip(path, after)
            return
        self._trash.append((stage, staged, path))
        self.done.add(path)

    def move_many(self, stage: Stage, wanted: list[tuple[str, int, bytes]]) -> set[int]:
        """Make steps ("swap", "trash" or "new", number, path) that need no closer look; the numbers of those made.

        What is not made is as it was, and may be tried one by one. Raises OSError.
        """
        calls, kept = [], []
        for what, i, path in wanted:
            expected = _NOTHING if what == "new" else self.likeness.columns(path)
            if expected is not None:
                name = stage.trash_name() if what == "trash" else b"n%d" % i
                calls.append((_CODES[what], path, name, *expected))
                kept.append((what, i, path, name))
        made: set[int] = set()
        failed = 0
        codes = native.move_many(self.beneath.root_fd, stage.fd, calls) if calls else []
        for (what, i, path, name), code in zip(kept, codes, strict=True):
            if code < 0:
                if what == "swap":
                    self._shown.append((stage, name, path))  # perhaps: somebody was faster
                continue
            self.doors.touched.add(tree.parent(path))
            self._made.append((what, path, name, stage))
            if code:
                failed = code
                continue
            if what != "new":
                self._trash.append((stage, name, path))
            self.done.add(path)
            made.add(i)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return made

    def skip(self, path: bytes, wanted: Entry | None) -> None:
        """Leave it alone: it is not what the plan was made for."""
        self.conflicts.append(Conflicted(path, _CHANGED, wanted=wanted))

    def is_conflicted(self, path: bytes) -> bool:
        """Whether it, or a directory above it, was left alone."""
        if not self.conflicts:
            return False
        bad = {c.path for c in self.conflicts}
        return path in bad or any(above in bad for above in tree.ancestors(path))

    def return_late_writes(self, wanted: Callable[[bytes], Entry | None]) -> None:
        """A program may hold a replaced file open and write on: such a file goes back to its place and is named.

        `wanted` tells what was put at a path in its stead. What is open and was not written yet is named in `held`.
        """
        if self.recover:
            return
        late: set[bytes] = set()  # databases
        held = self._return_written(list(self._trash), wanted, late)
        programs = find_writers({file for _, file, _ in held}) if held else {}
        # who is not found has closed it meanwhile, and may have written before that; or is of another user
        closed = [item for item, file, _ in held if file not in programs]
        held = [one for one in held if one[1] in programs] + self._return_written(closed, wanted, late)
        if late:
            self._give_back(late, _WRITTEN, wanted)
            self.shared = [path for path in self.shared if self.parts.get(path) not in late]
        # a database is named once
        held_paths = {item[2] for item, _, _ in held}
        held = [
            one
            for one in held
            if (database := self.parts.get(one[0][2], one[0][2])) not in late
            and (database == one[0][2] or database not in held_paths)
        ]
        self._name_holders(held, programs)
        self._name_openers(wanted)

    def _name_openers(self, wanted: Callable[[bytes], Entry | None]) -> None:
        """Somebody may have opened what we put at a path before it was taken away again, and write into that."""
        shown = [item for item in dict.fromkeys(self._shown) if item[2] not in self.done]
        held: list[Held] = []
        for (stage, name, path), is_open in zip(shown, _still_open(shown), strict=True):
            fd, last = stage.spot(name)
            if not is_listed(fd, last):
                continue  # used up: the path was given it in another way
            if not _is_placed(fd, last, wanted(path)):
                saved = rescue(stage, fd, last)
                self.conflicts.append(Conflicted(path, f"what somebody wrote there meanwhile is saved as {saved}"))
            elif is_open:
                st = os.stat(last, dir_fd=fd, follow_symlinks=False)
                held.append(((stage, name, path), (st.st_dev, st.st_ino), _is_surely_open(fd, last)))
        self._name_holders(held, find_writers({file for _, file, _ in held}) if held else {})

    def _return_written(
        self, items: list[Trash], wanted: Callable[[bytes], Entry | None], late: set[bytes]
    ) -> list[Held]:
        """Those of these that were written go back to their place, but for databases, which are added to `late`.

        The answer: what somebody has open, or may have, and has not written yet.
        """
        held: list[Held] = []
        looks = zip(_still_open(items), self._is_plainly_same(items), strict=True)
        for item, (is_open, is_plain) in zip(items, looks, strict=True):
            stage, name, path = item
            if self.is_index(path) or (is_plain and not is_open):
                continue
            from_fd, last_name = stage.spot(name)
            st = os.stat(last_name, dir_fd=from_fd, follow_symlinks=False)
            row = native.find(self.index, path)
            if row < 0 or not stat.S_ISREG(st.st_mode):
                continue
            _, entry = tree.entry_at(self.index, row)
            if st.st_nlink > 1 and st.st_nlink > self.names(entry.link) and path not in self.shared:
                self.shared.append(path)
            is_same = st.st_size == entry.size and self.likeness.has_time(st, entry)
            # what is written through a mapping does not always move the times
            if is_same and not (is_open and not has_bytes(from_fd, last_name, entry)):
                if is_open:
                    held.append((item, (st.st_dev, st.st_ino), _is_surely_open(from_fd, last_name)))
                continue
            if path in self.parts:
                late.add(self.parts[path])
                continue
            try:
                fd, last = self.doors.parent(path)
            except OSError:
                saved = rescue(stage, from_fd, last_name)
                self.conflicts.append(Conflicted(path, f"written late; saved as {saved}"))
                continue
            reason = _WRITTEN
            if self.beneath.lstat(path) is None:
                move(from_fd, last_name, fd, last)
            else:
                native.rename2(from_fd, last_name, fd, last, _EXCHANGE)
                if _is_placed(from_fd, last_name, wanted(path)):
                    self._shown.append(item)
                else:
                    reason += f"; what somebody put there meanwhile is saved as {rescue(stage, from_fd, last_name)}"
            self.done.discard(path)
            self.conflicts.append(Conflicted(path, reason))
        return held

    def keep_databases_whole(self, wanted: Callable[[bytes], Entry | None]) -> None:
        """If a part of a database was left alone, the others go back: it would be a mix of two states."""
        left = {self.parts[c.path] for c in self.conflicts if c.path in self.parts and not self.is_index(c.path)}
        if left and not self.recover:  # what the run that died has moved can't be told any more
            self._give_back(left, "a part of this database " + _CHANGED.removeprefix("changed "), wanted)

    def _give_back(self, databases: set[bytes], reason: str, wanted: Callable[[bytes], Entry | None]) -> None:
        """Undo the steps made with these databases, newest first; each part is left as it is for that reason."""
        named = {conflict.path for conflict in self.conflicts}
        for step in [step for step in reversed(self._made) if self.parts.get(step[1]) in databases]:
            what, path, name, stage = step
            said = self._give_back_one(what, path, name, stage, wanted(path))
            self._made.remove(step)
            self._trash = [item for item in self._trash if item[:2] != (stage, name)]
            self.done.discard(path)
            if path not in named and not self.is_index(path):
                named.add(path)
                self.conflicts.append(Conflicted(path, reason + said))

    def _give_back_one(self, what: str, path: bytes, name: bytes, stage: Stage, ours: Entry | None) -> str:
        """Undo one step; says where it went if somebody's file was there by now."""
        try:
            fd, last = self.doors.parent(path)
        except OSError:  # its directory is gone
            return f"; saved as {rescue(stage, *stage.spot(name))}" if what != "new" else ""
        is_there = self.beneath.lstat(path) is not None
        if what == "new" and is_there:
            move(fd, last, *stage.spot(name))
        elif what in ("trash", "swap") and not is_there:
            move(*stage.spot(name), fd, last)
            return ""
        elif what in ("trash", "swap"):
            native.rename2(*stage.spot(name), fd, last, _EXCHANGE)
        else:
            return ""
        if self.is_index(path) or _is_placed(*stage.spot(name), ours):
            self._shown.append((stage, name, path))
            return ""
        return f"; what somebody put there meanwhile is saved as {rescue(stage, *stage.spot(name))}"

    def is_index(self, path: bytes) -> bool:
        """Whether it is the index of a database's log, which has no content of its own."""
        return path in self.parts and path == index_of(self.parts[path])

    def _name_holders(self, held: list[Held], programs: dict[tuple[int, int], list[tuple[int, str]]]) -> None:
        """Which programs they are: they write on into a file that has no name any more, and do not notice."""
        for (_, _, path), file, is_sure in held:
            some = programs.get(file, [])
            # we may have it from who called us, who is the one to be restarted
            others = [program for program in some if program[0] != os.getpid()] or some
            names = " and ".join(f"{name} (pid {pid})" for pid, name in others)
            if names or is_sure:  # where leases do not work nothing but the program itself is a proof
                reason = f"held open for writing by {names or 'a program of another user'}"
                self.held.append(Gap(path, f"{reason}; what it writes from now on goes to the old file: restart it"))

    def names(self, link: int) -> int:
        """How many names of a hard-link group were in the tree; a file without a group had one."""
        if self._counts is None:
            self._counts = count_names(self.index)
        return self._counts.get(link, 0) if link else 1

    def _is_plainly_same(self, trash: list[Trash]) -> list[bool]:
        """For each of these, whether it is a file with one name that nobody has written; all others need a closer look.

        To be asked after who has it open: what is written until then shows in its times.
        """
        found: list[bool] = []
        for stage, items in groupby(trash, key=lambda item: item[0]):
            some = list(items)
            for (_, _, path), st in zip(some, native.stat_many(stage.fd, [name for _, name, _ in some]), strict=True):
                row = native.find(self.index, path)
                if st is None or row < 0 or not stat.S_ISREG(st[0]) or st[3] != 1:
                    found.append(False)
                else:
                    _, kind, _, _, _, size, mtime_s, mtime_ns, *_ = native.get(self.index, row)
                    found.append(kind == FILE and st[7:10] == (size, mtime_s, mtime_ns))
        return found

    def take_back(self, moves: tree.Delta, error: OSError, clean_up: Callable[[], None]) -> None:
        """Undo the steps made so far, newest first. Raises Partial if that fails as well."""
        befores = {path: before for path, before, _ in moves}
        try:
            for what, path, name, stage in reversed(self._made):
                fd, last = self.beneath.at(path)
                if what == "swap":
                    native.rename2(*stage.spot(name), fd, last, _EXCHANGE)
                elif what == "trash":
                    move(stage.fd, name, fd, last)
                elif what == "new":
                    move(fd, last, *stage.spot(name))
                elif what == "mkdir":
                    self.beneath.forget(path)
                    os.rmdir(last, dir_fd=fd)
                elif what == "rmdir":
                    os.mkdir(last, 0o700, dir_fd=fd)
                    self.doors.touched.add(path)
                before = befores[path]
                if what in ("meta", "rmdir") and before is not None:
                    set_meta(fd, last, before, lost=[])
            self.done.clear()
            clean_up()
        except OSError as second:
            raise Partial(
                f"the rollback stopped half-way ({error.strerror}) and could not be taken back ({second.strerror})",
                hints=["free some space or rights, then run reprieve status here: it finishes the rollback"],
            ) from error


def _still_open(trash: list[Trash]) -> list[bool]:
    """For each of these files, whether somebody has it open or mapped for writing, or that can't be told."""
    found: list[bool] = []
    for stage, items in groupby(trash, key=lambda item: item[0]):
        names = [name for _, name, _ in items]
        for at in range(0, len(names), _AT_ONCE):
            found += native.writers(stage.fd, names[at : at + _AT_ONCE], lambda: None)
    return found


def move(from_fd: int, old: bytes, to_fd: int, new: bytes) -> None:
    """Rename to a name that is free. Raises OSError."""
    try:
        native.rename2(from_fd, old, to_fd, new, _NOREPLACE)
    except OSError as e:
        if e.errno not in _UNSUPPORTED:
            raise
        if is_listed(to_fd, new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
        os.rename(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd)


def rescue(stage: Stage, dir_fd: int, name: bytes) -> str:
    """Move what nobody has captured out of the stage, to a name in the root of the tree that is told."""
    first = saved = b"reprieve-rescued-" + stage.name.lstrip(b".") + b"-" + name
    for number in count(2):
        try:
            move(dir_fd, name, stage.root_fd, saved)
            break
        except FileExistsError:
            saved = b"%s-%d" % (first, number)
    return os.fsdecode(saved)


def _is_surely_open(dir_fd: int, name: bytes) -> bool:
    """Whether somebody has it open for writing, and not merely that it can't be told."""
    from reprieve.files._twin_open import writer_of

    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return False
    try:
        return writer_of(fd) is True
    finally:
        os.close(fd)


def _is_placed(dir_fd: int, name: bytes, entry: Entry | None) -> bool:
    """Whether that is what the restore has put there."""
    st = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if entry is None or stat.S_IFMT(st.st_mode) != file_type(entry.kind):
        return False
    if st.st_mtime_ns != entry.mtime_s * 1_000_000_000 + entry.mtime_ns:
        # some file systems (FUSE) set a time of their own
        return entry.kind == FILE and st.st_size == entry.size and has_bytes(dir_fd, name, entry)
    return entry.kind != FILE or st.st_size == entry.size


def _came_out(stage: Stage, name: bytes, st: os.stat_result, *, is_any: bool = False) -> bool:
    """Whether what was moved into the stage is what was looked at; its ctime moved with it.

    `is_any`: it is the same file, whatever it holds by now.
    """
    fd, last = stage.spot(name)
    now = os.stat(last, dir_fd=fd, follow_symlinks=False)
    if is_any:
        return now.st_ino == st.st_ino
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (st.st_ino, st.st_size, st.st_mtime_ns)
