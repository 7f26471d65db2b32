"""Find what changed since the last tree, read it into the store, and give the new tree and its delta.

    scan ─▶ rows (new, changed) ─▶ read small files in batches ─▶ read large, sparse, database files with care
         ─▶ xattrs, hard links, gaps ─▶ merge with the old tree ─▶ delta

Nothing here decides what a checkpoint is called or makes it durable: that is the caller's.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time

from reprieve.files import ahead, live_sqlite, native, told, tree
from reprieve.files.beneath import Beneath
from reprieve.files.content import WHOLE, Captured, Unstable, capture, is_sparse
from reprieve.files.databases import has_names
from reprieve.files.gaps import MOVED, gaps_of, in_sight, why
from reprieve.files.links import group_links
from reprieve.files.mounts import mounts_inside
from reprieve.files.processes import is_mapped
from reprieve.model.change import EXCLUDED, TOO_LARGE, UNREADABLE, WORKSPACE_FILE, Gap, classify
from reprieve.model.entry import BLOCK, CHAR, DIR, FIFO, FILE, SOCKET, SYMLINK, Entry
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reprieve.files.ignore import Excludes
    from reprieve.model.reporter import Reporter
    from reprieve.store.protocols import Buffer

    Put = Callable[[Iterable[tuple[bytes, Buffer]]], object]

_BATCH = 4 << 20
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: DIR,
    stat.S_IFLNK: SYMLINK,
    stat.S_IFIFO: FIFO,
    stat.S_IFSOCK: SOCKET,
    stat.S_IFCHR: CHAR,
    stat.S_IFBLK: BLOCK,
}
_AT_A_TIME = 1024  # rows; bounds memory
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOGS = (b"-wal", b"-journal")
_ROW = tree.ROW.size


class Limits(Value):
    """What of the tree is not captured, by the user's choice."""

    excludes: Excludes | None = None
    max_file_size: int = 0  # 0: no limit
    cross_mounts: bool = False
    skip: frozenset[bytes] = frozenset()  # our own staging directory, a store inside the tree
    only: frozenset[bytes] = frozenset()  # names in the root; if there are any, nothing else is looked at


class Snapshot(Value):
    """The tree as it is now, and how it differs from the tree it was compared with."""

    index: Buffer  # packed, with stat columns
    delta: bytes  # delta object, b"" if nothing differs
    changes: tree.Delta | None  # the same decoded, until it is stored; None for a first snapshot (everything is new)
    changed: int
    files: int  # all but directories; -1: as before
    size: int  # -1: as before
    gaps: tuple[Gap, ...]
    is_fresh: bool  # the index differs from the one it was made from, if only in stat columns
    stored: bytes = b""  # id of the delta, once it is in the store and no longer here
    mark: told.Mark | None = None  # what happens to the tree from here on, the helper knows


def take_snapshot(
    root_fd: int,
    *,
    last: Buffer | None,
    put: Put | None,
    limits: Limits,
    reporter: Reporter,
    tag: bytes = bytes(16),
    truth: Buffer | None = None,
    distrust: frozenset[bytes] = frozenset(),
    since: told.Mark | None = None,
) -> Snapshot:
    """Compare the disk with `last`; new content goes to `put` (None: only hashed).

    `truth` is the timeline's tree where `last` is not exactly that (a rebuilt index). `distrust` holds ids of damaged
    objects: files that have such content are read again even if unchanged, so that the store heals. `since` is when
    `last` was made, if it is an index as it was then: rows that nothing happened to need no look.
    """
    work = _Work(root_fd, last, put or (lambda items: 0), limits, reporter)
    work.truth, work.distrust, work.since = truth, distrust, since
    try:
        work.scan()
        work.read_small()
        work.read_rest()
        work.read_databases()
        work.read_xattrs()
        work.group_links()
        return work.finish(tag).replace(mark=work.mark)
    finally:
        work.close()


class _Work:
    def __init__(self, root_fd: int, last: Buffer | None, put: Put, limits: Limits, reporter: Reporter) -> None:
        self.root_fd, self.last, self.put, self.limits, self.reporter = root_fd, last, put, limits, reporter
        self.truth: Buffer | None = None
        self.distrust: frozenset[bytes] = frozenset()
        self.since: told.Mark | None = None
        self.mark: told.Mark | None = None
        self.beneath = Beneath(root_fd)
        self.rows = bytearray()
        self.hints = b""
        self.gone: list[bytes] = []
        self.extras: dict[int, bytes] = {}
        self.with_xattrs: list[int] = []
        self.databases: set[bytes] = set()
        self.gaps: dict[bytes, tuple[str, int]] = {}  # path -> reason, row or -1
        self.is_complete = True  # no gap of before may hide a name
        self.vanished: list[bytes] = []
        self.joining: list[tuple[bytes, Entry, tree.Stat, int]] = []  # unchanged, but of another hard-link group now

    def close(self) -> None:
        self.beneath.close()

    # -- finding what changed

    def scan(self) -> None:
        floor = time.time_ns() - ahead.RACY_NS
        excludes = self.limits.excludes
        accept = None
        if excludes is not None and not excludes.is_empty:

            def accept(path: bytes, is_dir: bool) -> bool:
                if excludes.accepts(path, is_dir):
                    return True
                self.gaps[path] = (EXCLUDED, -1)
                return False

        if self.limits.only:
            inner, names = accept, self.limits.only

            def accept(path: bytes, is_dir: bool) -> bool:
                return path.partition(b"/")[0] in names and (inner is None or inner(path, is_dir))

        seconds, ns = divmod(floor, 1_000_000_000)
        cross, skip = self.limits.cross_mounts, self.limits.skip
        mounts: frozenset[bytes] = frozenset()
        begun = None
        how = (self.root_fd, self.last, seconds, ns, cross, accept)
        try:
            look = self._rows_to_look_at()
            nothing: ahead.Found = (tree.pack([]), [], [])  # to look at: not even at the index
            if look is None and not cross:  # a tree with a mount inside is not followed
                mounts = mounts_inside(self.beneath)
                begun = ahead.take(self.root_fd, self.last, mounts, self.limits)
            if begun is None:
                found = nothing if look == b"" else native.scan(*how, skip | mounts, look)
            else:
                floor, found = begun
        except LookupError:  # the tree is not as it was told
            mounts = frozenset() if cross else mounts_inside(self.beneath)
            found = native.scan(*how, skip | mounts)
        self.rows, self.gone, problems = found
        for path, code, _ in problems:
            if not path:
                raise OSError(code, os.strerror(code), ".")
            self.gaps[path] = (why(code), -1)
        for path in sorted(mounts, key=len):
            self._leave_mount(path, accept)
        self._part_case_twins()
        self._recheck(floor)
        self._pair_databases(floor)
        self.hints = bytes(self.rows) if self.last is not None else b""

    def _leave_mount(self, path: bytes, accept: Callable[[bytes, bool], bool] | None) -> None:
        """The scan passed it by; it is named, unless it is left out anyway or lies in what is."""
        for at in reversed((path, *tree.ancestors(path))):
            if at in self.gaps or at in self.limits.skip:
                return
            known = tree.lookup(self.last, at) if self.last is not None else None
            if accept is None or not at or (known is not None and not known.gap):
                continue
            st = self.beneath.seen(at)
            if not accept(at, st is not None and stat.S_ISDIR(st.st_mode)):
                return
        self.gaps[path] = (why(errno.EXDEV), -1)

    def _rows_to_look_at(self) -> bytes | None:
        """None: all. Asked before the first look: what changes from now on is told the next time."""
        if self.limits.only or self.limits.skip:
            return None
        word = told.ask(self.root_fd, self.since)
        self.mark = word.mark if word is not None else None
        if word is None or word.paths is None or self.since is None or self.last is None:
            return None
        look = told.rows_to_look_at(self.last, word.paths)
        most = max(1_000, tree.count(self.last) // 2)
        if len(look) // 4 <= most:
            return look
        if told.deaf_rows(self.last, word.paths) > most:
            told.say_it_is_useless(self.root_fd)
        return None

    def _part_case_twins(self) -> None:
        """Where `a` and `A` are one name, a renamed file answers to its old name too: that one is gone."""
        if self.last is None:
            return
        new = [p for row in range(tree.count(self.rows)) if native.find(self.last, p := self._path(row)) < 0]
        sample = next((p for p in new if p.swapcase() != p), b"")
        if not sample:
            return
        above, _, name = sample.rpartition(b"/")
        if self.beneath.seen(above + b"/" + name.swapcase() if above else name.swapcase()) is None:
            return  # names that differ in case are two names here
        if name.swapcase() in map(os.fsencode, os.listdir(self.beneath.dir(above))):
            return
        known = {path.lower(): path for path, _ in tree.entries(self.last)}
        for path in new:
            old = known.get(path.lower())
            if old is None or old in self.gone:
                continue
            if old.rpartition(b"/")[2] not in map(os.fsencode, os.listdir(self.beneath.dir(tree.parent(path)))):
                self.gone.append(old)
                self.rows = native.merge(self.rows, tree.pack([]), [old], {}, bytes(16))

    def _recheck(self, floor: int) -> None:
        """Add rows for known entries that must be read again although their stat did not change."""
        if self.last is None:
            return
        again = tree.numbers(native.rows_with(self.last, tree.GAP))
        if self.distrust:
            rows = range(tree.count(self.last))
            again += [row for row in rows if tree.entry_at(self.last, row)[1].content in self.distrust]
        items, folders = [], []
        root_dev = os.fstat(self.root_fd).st_dev
        for row in again:
            path, entry = tree.entry_at(self.last, row)
            self.is_complete &= entry.gap in ("", EXCLUDED)
            if entry.gap == EXCLUDED or path in self.gaps or native.find(self.rows, path) >= 0:
                continue
            st = self.beneath.seen(path)
            if st is None or (st.st_dev != root_dev and not self.limits.cross_mounts):
                continue
            if stat.S_ISREG(st.st_mode):
                items.append((path, _entry(st), _stat(st, floor), tree.NEEDS))
            elif entry.gap and stat.S_ISDIR(st.st_mode):
                if self._can_list(path):
                    folders.append(path)
            elif entry.gap and (target := self._target(path, st)) is not None:
                items.append((path, _entry(st).replace(target=target), _stat(st, floor), 0))
        if folders:
            # directories that could not be listed before: without their rows they and all below count as new
            self.truth = self.truth if self.truth is not None else self.last
            base = native.merge(self.last, tree.pack([]), folders, {}, tree.tag(self.last))
            for above in {tree.parent(path) for path in folders}:
                row = native.find(base, above)
                base[tree.HEADER.size + row * _ROW + 7] |= tree.RACY  # so that it is listed again
            self.last, self.since = base, None
            self.scan()
        elif items:
            self.rows = native.merge(self.rows, tree.pack(items), [], {}, bytes(16))

    def _target(self, path: bytes, st: os.stat_result) -> bytes | None:
        """Where a link leads, b"" for what is no link, None if it cannot be read."""
        if not stat.S_ISLNK(st.st_mode):
            return b""
        fd, name = self.beneath.at(path)
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError:
            return None  # still a gap

    def _can_list(self, path: bytes) -> bool:
        """Whether its names can be read and looked at: without the right to enter it, they are all there is to see."""
        try:
            fd = native.open_beneath(self.root_fd, path, _READ | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            os.stat(b".", dir_fd=fd)
        except PermissionError:
            return False
        finally:
            os.close(fd)
        return True

    def _pair_databases(self, floor: int) -> None:
        """A database and its logs are read together, so if one changed the others are looked at as well."""
        # nothing changed: most checkpoints of large trees
        if (
            self.last is None
            or not tree.count(self.rows)
            or not (has_names(self.rows, _LOGS) or has_names(self.last, _LOGS))
        ):
            return
        items = []
        for row in range(tree.count(self.rows)):
            path = self._path(row)
            base = path
            for suffix in _LOGS:
                if path.endswith(suffix):
                    base = path[: -len(suffix)]
            for partner in (base, *(base + suffix for suffix in _LOGS)):
                if native.find(self.last, partner) < 0 or native.find(self.rows, partner) >= 0:
                    continue
                st = self.beneath.seen(partner)
                if st is not None and stat.S_ISREG(st.st_mode) and partner not in self.gaps:
                    items.append((partner, _entry(st), _stat(st, floor), tree.NEEDS))
        if items:
            self.rows = native.merge(
                self.rows, tree.pack({item[0]: item for item in items}.values()), [], {}, bytes(16)
            )

    # -- reading

    def read_small(self) -> None:
        total = tree.count(self.rows)
        limit = min(WHOLE, self.limits.max_file_size or WHOLE)
        row, read = 0, 0
        while row >= 0 and row < total:
            data, parts, row, problems = native.read_rows(self.root_fd, self.rows, row, _BATCH, limit)
            view = memoryview(data)
            fresh = []
            for at, off, length, has_xattrs, content in parts:
                if has_xattrs:
                    self.with_xattrs.append(at)
                if length >= 1 << 16:
                    self._look_for_holes(at)
                if length >= 512 and live_sqlite.is_database(data[off : off + 16]):
                    self.databases.add(self._path(at))
                if content != self._hint(at) or content in self.distrust:
                    fresh.append((content, view[off : off + length]))
                read += length
            self.put(fresh)
            for at, code in problems:
                self._problem(at, code)
            if total > 1000:
                self.reporter.progress("checkpoint", done=total if row < 0 else row, total=total, extra=read)

    def _look_for_holes(self, row: int) -> None:
        st = self.beneath.seen(self._path(row))
        if st is not None and is_sparse(st):
            self.rows[tree.HEADER.size + row * _ROW + 7] |= tree.NEEDS  # `read_rest` keeps holes as holes

    def read_rest(self) -> None:
        """Files that are too large for a batch, or sparse."""
        for row in tree.numbers(native.rows_with(self.rows, tree.NEEDS)):
            path, entry = tree.entry_at(self.rows, row)
            if entry.kind != FILE or path in self.gaps or path in self.databases:
                continue
            limit = self.limits.max_file_size
            # what sets the limit is under none: an agent that wrote it would be out of reach of a rollback
            if limit and entry.size > limit and path != WORKSPACE_FILE:
                self._gap(row, f"{TOO_LARGE} ({limit} bytes)")
                continue
            self._read_one(row, path)

    def _read_one(self, row: int, path: bytes, *, prefix: bool = False) -> Captured | None:
        try:
            fd = native.open_beneath(self.root_fd, path, _READ)
        except OSError as e:
            self._problem(row, e.errno or 0)
            return None
        try:
            if not stat.S_ISREG((st := os.fstat(fd)).st_mode):
                self._problem(row, errno.ESTALE)
                return None
            # mapped, it may be written without its times showing it, once they have shown the first time
            if native.writers(self.root_fd, [path], lambda: None)[0] and is_mapped(st.st_ino):
                self.rows[tree.HEADER.size + row * _ROW + 7] |= tree.RACY
            got = capture(fd, self.put, prefix=prefix)
            if os.listxattr(fd):
                self.with_xattrs.append(row)
        except Unstable:
            self._unstable(row, path)
            return None
        except OSError as e:
            self._problem(row, e.errno or 0)
            return None
        finally:
            os.close(fd)
        if live_sqlite.is_database(got.head):
            self.databases.add(path)
        self._set(row, got)
        return got

    def read_databases(self) -> None:
        """Read live databases and their side files again while nobody may write them."""
        changed = {self._path(row) for row in range(tree.count(self.rows))} if self._has_sidecars() else set()
        for path in changed:
            for suffix in _LOGS:
                if path.endswith(suffix):
                    self.databases.add(path[: -len(suffix)])
        for path in sorted(self.databases):
            rows = {p: native.find(self.rows, p) for p in (path, path + b"-wal", path + b"-journal")}
            st = self.beneath.seen(path)
            if st is None or not stat.S_ISREG(st.st_mode) or not any(row >= 0 for row in rows.values()):
                continue
            dir_fd, name = self.beneath.at(path)
            with live_sqlite.held(dir_fd, name) as is_held:
                for part, row in rows.items():  # the database before its log: see live_sqlite
                    if row >= 0 and is_held:
                        self.gaps.pop(part, None)
                        self._read_one(row, part, prefix=part != path)
            # one thing: if a part of it is not protected, none is
            if not is_held or any(part in self.gaps for part in rows):
                for row in (row for row in rows.values() if row >= 0):
                    self._gap(row, "database in use: no consistent copy could be made")

    def _has_sidecars(self) -> bool:
        return b"-wal" in self.rows or b"-journal" in self.rows

    def read_xattrs(self) -> None:
        wanted = {*self.with_xattrs, *native.with_xattrs(self.root_fd, self.rows)}
        kinds = bytes(
            memoryview(self.rows)[tree.HEADER.size + 6 : tree.HEADER.size + tree.count(self.rows) * _ROW : _ROW]
        )
        if os.geteuid() == 0 and SYMLINK in kinds:
            for row, kind in enumerate(kinds):
                if kind == SYMLINK[0]:
                    self._read_link_xattrs(row)  # only root can have set one
        for row in sorted(wanted):
            path = self._path(row)
            if path in self.gaps:
                continue
            try:
                is_dir = self.rows[tree.HEADER.size + row * _ROW + 6] == DIR[0]
                fd = os.dup(self.beneath.dir(path)) if is_dir else native.open_beneath(self.root_fd, path, _READ)
            except OSError as e:
                self._problem(row, e.errno or 0)
                continue
            try:
                xattrs = tuple(sorted((os.fsencode(n), os.getxattr(fd, n)) for n in os.listxattr(fd)))
            except OSError as e:
                if e.errno not in (errno.ENOTSUP, errno.ENODATA):
                    self._problem(row, e.errno or 0)
                continue
            finally:
                os.close(fd)
            if xattrs:
                self.extras[row] = tree.encode_extra(b"", xattrs, "")

    def _read_link_xattrs(self, row: int) -> None:
        path = self._path(row)
        try:
            fd, name = self.beneath.at(path)
            at = b"/proc/self/fd/%d/%s" % (fd, name)
            names = os.listxattr(at, follow_symlinks=False)
            xattrs = tuple(sorted((os.fsencode(n), os.getxattr(at, n, follow_symlinks=False)) for n in names))
        except OSError:
            return  # gone, or no such attributes on this file system: the link itself is in its row
        if xattrs:
            entry = tree.entry_at(self.rows, row)[1]
            self.extras[row] = tree.encode_extra(entry.target, xattrs, "")

    def group_links(self) -> None:
        """Give files that are one inode under several names a common number."""
        self.joining = group_links(
            self.rows,
            last=self.last,
            known=self.truth if self.truth is not None else self.last,
            gone=self.gone,
            is_complete=self.is_complete and all(reason == EXCLUDED for reason, _ in self.gaps.values()),
            beneath=self.beneath,
        )

    # -- putting it together

    def finish(self, tag: bytes) -> Snapshot:
        rows = self.rows
        if self.last is not None and self.truth is None and not (tree.count(rows) or self.gone or self.gaps):
            return Snapshot(self.last, b"", [], 0, -1, -1, gaps_of(self.last), False)
        if self.extras:
            rows = native.merge(None, rows, [], self.extras, bytes(16))
        if self.joining:
            rows = native.merge(rows, tree.pack(self.joining), [], {}, bytes(16))
        rows = self._with_gaps(rows)
        index = tree.advance(self.last, rows, self.gone, tag=tag)
        gaps = gaps_of(index)
        if self.last is None:
            files, size = native.totals(index)
            delta = tree.encode_delta(tree.pack([]), tree.without_stat(index))
            return Snapshot(index, delta, None, tree.count(index) - 1, files, size, gaps, True)  # without the root
        changes = self._changes(rows, index)
        files, size = native.totals(index) if changes else (-1, -1)
        delta = tree.pack_delta(changes) if changes else b""
        is_fresh = self.truth is not None or tree.count(rows) > 0 or bool(self.gone)
        # a directory whose times moved because of what happened in it is in the delta and no change to a person
        changed = sum(1 for _, before, after in changes if classify(before, after))
        return Snapshot(index, delta, changes, changed, files, size, gaps, is_fresh)

    def _changes(self, rows: bytearray, index: bytearray) -> tree.Delta:
        if self.truth is not None:
            return [change for change in tree.compare(self.truth, index) if change[1] != change[2]]
        assert self.last is not None
        changes: tree.Delta = []
        for first in range(0, tree.count(rows), _AT_A_TIME):
            for path, entry in native.entries(rows, Entry, first, min(first + _AT_A_TIME, tree.count(rows))):
                before = tree.lookup(self.last, path)
                if before != entry:
                    changes.append((path, before, entry))
        gone = dict.fromkeys(path for path in self.gone if native.find(index, path) < 0)
        changes += [(path, before, None) for path in gone if (before := tree.lookup(self.last, path)) is not None]
        return tree.explained(changes, self.last, index)

    def _with_gaps(self, rows: bytearray) -> bytearray:
        items = {}
        for path, (reason, _) in self.gaps.items():
            if len(path) > tree.LONGEST_PATH:
                path, reason = tree.parent(path[: tree.LONGEST_PATH + 1]), "holds names whose path is too long"
            at, st = in_sight(self.beneath, path)
            if st is None:
                self.vanished.append(at)  # it could not be looked at because it is gone
            else:
                # only its kind: what is not protected must not look changed because its times moved
                kind, reason = _KINDS[stat.S_IFMT(st.st_mode)], reason if at == path else UNREADABLE
                items[at] = (at, Entry(kind, 0, 0, 0, gap=reason), tree.NO_STAT, 0)
        if self.vanished:
            rows = native.merge(rows, tree.pack([]), self.vanished, {}, bytes(16))
            self.gone = self.gone + self.vanished
        return native.merge(rows, tree.pack(items.values()), [], {}, bytes(16)) if items else rows

    # -- rows

    def _path(self, row: int) -> bytes:
        return native.get(self.rows, row)[0]

    def _hint(self, row: int) -> bytes:
        at = tree.HEADER.size + row * _ROW + 88
        return self.hints[at : at + 32]

    def _set(self, row: int, got: Captured) -> None:
        at, st = tree.HEADER.size + row * _ROW, got.st
        flags = self.rows[at + 7] & ~(tree.NEEDS | tree.CHUNKED) | (tree.CHUNKED if got.is_chunked else 0)
        self.rows[at + 7] = flags
        mtime_s, mtime_ns = divmod(st.st_mtime_ns, 1_000_000_000)
        ctime_s, ctime_ns = divmod(st.st_ctime_ns, 1_000_000_000)
        struct.pack_into("<IIII", self.rows, at + 8, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_nlink)
        struct.pack_into("<QqqII", self.rows, at + 24, st.st_size, mtime_s, ctime_s, mtime_ns, ctime_ns)
        struct.pack_into("<Q", self.rows, at + 56, st.st_ino)
        self.rows[at + 88 : at + 120] = got.content

    def _problem(self, row: int, code: int) -> None:
        path = self._path(row)
        if code in MOVED and in_sight(self.beneath, path)[1] is None:
            self.vanished.append(path)
        elif code == errno.EAGAIN:
            self._unstable(row, path)
        else:
            self._gap(row, why(code))

    def _unstable(self, row: int, path: bytes) -> None:
        """A database that is being written is read again later, under its locks; anything else is a gap."""
        if path not in self.databases:
            try:
                fd = native.open_beneath(self.root_fd, path, _READ)
            except OSError as e:
                self._gap(row, why(e.errno or 0))
                return
            try:
                # it may be a pipe by now
                is_database = stat.S_ISREG(os.fstat(fd).st_mode) and live_sqlite.is_database(os.pread(fd, 16, 0))
            finally:
                os.close(fd)
            if is_database:
                self.databases.add(path)
                return
        self._gap(row, "changed while it was being read")

    def _gap(self, row: int, reason: str) -> None:
        self.gaps[self._path(row)] = (reason, row)


def _entry(st: os.stat_result) -> Entry:
    kind = _KINDS[stat.S_IFMT(st.st_mode)]
    mtime_s, mtime_ns = divmod(st.st_mtime_ns, 1_000_000_000)
    size = st.st_size if kind == FILE else 0
    return Entry(kind, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, size, mtime_s, mtime_ns, rdev=st.st_rdev)


def _stat(st: os.stat_result, floor: int) -> tree.Stat:
    ctime_s, ctime_ns = divmod(st.st_ctime_ns, 1_000_000_000)
    is_racy = st.st_ctime_ns >= floor or st.st_mtime_ns >= floor
    return tree.Stat(st.st_ino, st.st_dev, st.st_nlink, ctime_s, ctime_ns, is_racy)
