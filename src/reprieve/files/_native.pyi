"""The native functions of the file engine. `_native.c` and `_twin.py` both keep these promises.

Paths are bytes relative to `root_fd`, joined by `/`, b"" is the root; a path with an empty, `.` or `..` component is
refused (EINVAL). No component is followed through a symlink. Buffers are packed trees as laid out in
docs/design/0001-file-engine.md; a damaged one is a ValueError.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from typing_extensions import Buffer

_T = TypeVar("_T")
_Fields = Any  # a tuple at run time

_Row = tuple[bytes, bytes, int, int, int, int, int, int, bytes, int, int, int, bytes, int, int, int, int, int]
_Stat = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
_Move = tuple[int, bytes, bytes, int, int, int, int, int, int, int]
_Item = tuple[bytes, Sequence[Buffer], int, int, int, int, int]

def scan(
    root_fd: int,
    index: Buffer | None,
    floor_s: int,
    floor_ns: int,
    cross_mounts: bool = False,
    accept: Callable[[bytes, bool], object] | None = None,
    skip: Iterable[bytes] = ...,
    look: Buffer | None = None,
) -> tuple[bytearray, list[bytes], list[tuple[bytes, int, bool]]]:
    """Compare the disk with `index`: (rows of what is new or changed, paths that are gone, problems).

    `index` must hold each row's directory too. A directory's `size` is 0 in its row. A row with GAP is left alone
    while the same kind of thing is there (a directory with GAP is not entered); when another kind is there, `accept`
    is asked as for a new name. What is on another device has no row, only its problem. A directory that cannot be
    opened has a row and a problem. The hint (old content, link, CHUNKED) is kept only where the kind is the same.
    Whatever `skip` names, and all below it, is neither in rows nor in gone nor in problems. Problems are in path order.
    `look`: numbers of the rows to look at (32 bits each, rising); the others are taken to be as they were. What is
    below a directory that went is gone all the same. LookupError if a directory on the way to a row is not there.
    """

def scan_begin(
    root_fd: int,
    index: Buffer | None,
    floor_s: int,
    floor_ns: int,
    cross_mounts: bool = False,
    accept: None = None,
    skip: Iterable[bytes] = ...,
) -> object | None:
    """Begin a scan on another processor, and return at once. None: there is no such, or the tree is too small for it.

    `root_fd` must stay open until the end. Given up when what this returned is let go of.
    """

def scan_end(scan: object, /) -> tuple[bytearray, list[bytes], list[tuple[bytes, int, bool]]]:
    """Help a scan to its end; what `scan` gives, or ValueError if its index is damaged. Once only."""

def read_rows(
    root_fd: int, rows: bytearray, start: int, max_bytes: int, max_file: int
) -> tuple[bytes, list[tuple[int, int, int, bool, bytes]], int, list[tuple[int, int]]]:
    """Read files that have NEEDS: (data, [(row, off, len, has_xattrs, id)], next row or -1, [(row, errno)]).

    `data` holds up to `max_bytes`, or one file; parts need not touch. `rows` is updated in place, RACY is set where the
    times moved since the scan, and its checksum is no longer valid (`merge` gives a fresh one). A file that has
    grown past `max_file` keeps NEEDS and has neither part nor problem. A vanished directory is ENOENT.
    """

def merge(
    index: Buffer | None, rows: Buffer, gone: Iterable[bytes], extras: dict[int, bytes] | None, tag: Buffer
) -> bytearray:
    """`index` without `gone` and with `rows`; `extras` replaces extras of `rows`, `tag` is 16 bytes.

    A directory that is gone, or that a row replaces by something else, takes the index's rows below it along. A path
    that is both in gone and in rows is in the result.
    """

def find(tree: Buffer | None, path: bytes, /) -> int:
    """Row of a path, -1 if there is none."""

def orphans(tree: Buffer | None, rows: Buffer, /) -> list[bytes]:
    """Paths of `rows` whose directory is not one in `tree`; the root counts as in itself."""

def totals(tree: Buffer, /) -> tuple[int, int]:
    """(names that are no directories, bytes of all files)."""

def rows_with(tree: Buffer, flags: int, kinds: bytes = b"", linked: bool = False, /) -> bytes:
    """Numbers (32 bits each, rising) of the rows with one of these flags or kinds.

    `linked`: and of those that are no directories and have not exactly one link.
    """

def has_end(tree: Buffer, ends: tuple[bytes, ...], /) -> bool:
    """Whether one of the paths ends with one of these."""

def get(tree: Buffer, row: int, /) -> _Row:
    """One row as a tuple.

    (path, kind, mode, uid, gid, size, mtime_s, mtime_ns, content, flags, link, rdev, extra, ino, ctime_s, ctime_ns,
    nlink, dev). `content` is b"" where the row has none (32 zero bytes). IndexError if there is no such row.
    """

def entries(tree: Buffer | None, make: type[_T], first: int = 0, last: int = -1, /) -> list[tuple[bytes, _T]]:
    """(path, entry) of rows [first, last), -1: to the end.

    `make` is a tuple class with the fields of model.entry.Entry. An entry's size and content are given for
    files only. IndexError if there are no such rows.
    """

def pack(items: Iterable[tuple[bytes, _Fields, _Fields, int]], tag: Buffer, /) -> bytearray:
    """A packed tree of (path, entry, stat, more flags) in any order; `tag` is 16 bytes.

    A stat is a tuple with the fields of files.tree.Stat. CHUNKED, GAP and RACY follow from entry and stat. Two entries
    at one path are a ValueError.
    """

def check(tree: Buffer, /) -> None:
    """ValueError if lengths, values, paths, order, extras or checksum are wrong. The tag is the caller's to check."""

def diff(old: Buffer | None, new: Buffer | None, /) -> list[tuple[int, int]]:
    """(row in old or -1, row in new or -1) where a restorable column or the extra differs, in path order.

    Restorable: kind, mode, owner, size, mtime, content, CHUNKED, GAP, link, rdev. A row with NEEDS always differs.
    """

def sha256(data: Buffer, /) -> bytes:
    """The digest, 32 bytes."""

def cuts(data: Buffer, min: int, avg: int, max: int, /) -> list[int]:
    """Content-defined chunk lengths: each in [min, max], the last may be short. 64 <= min <= avg <= max <= 2**30."""

def write_files(root_fd: int, items: Iterable[_Item], rooms: list[int] | None = None, /) -> list[int]:
    """Create files: [(path, buffers, mode, uid or -1, gid or -1, mtime_s, mtime_ns)] -> errno each, 0 if written.

    Directories on the way must be there. A file that failed is removed; one that was there before is EEXIST and
    untouched. `rooms`: where to create them, to be moved to their place from there: directories in other parts of the
    disk, -1 for their own place. Each thread takes the next one; those that turn out slow are taken out of the list
    (the twin does without).
    """

def make_dirs(root_fd: int, paths: Iterable[bytes], rooms: list[int] | None = None, /) -> list[int]:
    """Create directories with mode 0700 (less the umask), in this order -> errno each."""

def finish_dirs(root_fd: int, items: Iterable[tuple[bytes, int, int, int, int, int]], /) -> list[int]:
    """Set owner, mode and time: [(path, mode, uid or -1, gid or -1, mtime_s, mtime_ns)] -> errno each.

    -1: it has extended attributes, and nothing was set. EPERM: also where the system gave it another mode.
    """

def unlink_many(dir_fd: int, names: Iterable[bytes], /) -> list[int]:
    """Remove what is no directory, by single names -> errno each."""

def move_many(root_fd: int, stage_fd: int, items: Iterable[_Move], /) -> list[int]:
    """Rename between the tree and the stage, in this order: [(what, path, name in the stage, type bits, ino, size or
    -1, mtime_s, mtime_ns, ctime_s, ctime_ns or -1)] -> code each.

    what: 0 both change places, 1 out of the tree, 2 into the tree where nothing is (then the rest is not looked at).
    What is at the path must be as the item says; its mtime counts only where ctime_ns is -1. What came out is compared
    with what was looked at. 0: done. -1: nothing moved, for any reason: look closer. An errno: it has moved, and what
    came after failed; nothing after it was tried.
    """

def look_at(root_fd: int, paths: Iterable[bytes], /) -> list[tuple[int, int, int, bool] | None]:
    """(flags, mode with type, uid, whether its directory's file system is read-only) each; None: can't be reached.

    flags: 1 immutable, 2 append-only, -1: nothing is there, or the system does not tell in this way.
    """

def with_xattrs(root_fd: int, rows: Buffer, /) -> list[int]:
    """Rows of directories that have extended attributes, or could not be asked."""

def rename2(old_dir_fd: int, old: bytes, new_dir_fd: int, new: bytes, flags: int, /) -> None:
    """rename with flags 0, 1 NOREPLACE, 2 EXCHANGE. Names are single components; EINVAL where unsupported."""

def open_beneath(root_fd: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open with O_NOFOLLOW in every component; a symlink in the way is ELOOP. O_CLOEXEC is always set."""

def stat_many(root_fd: int, paths: Iterable[bytes], /) -> list[_Stat | None]:
    """(mode with type, uid, gid, nlink, ino, dev, rdev, size, mtime_s, mtime_ns, ctime_s, ctime_ns) each.

    None: nothing is there, or a component is no directory (any more). Any other error is raised: "not there" must
    not be said of what cannot be seen.
    """

def fill_stats(root_fd: int, rows: bytearray, /) -> list[int]:
    """Set nlink, ino, dev and ctime of each row to what is there now, and RACY; the rows where nothing is there.

    In place; the checksum is no longer valid (`merge` gives a fresh one). Errors as in `stat_many`.
    """

def syncfs(fd: int, /) -> None:
    """Make the whole file system of fd durable."""

def writers(root_fd: int, paths: Iterable[bytes], between: Callable[[], object], /) -> list[bool]:
    """Whether somebody may have it open for writing, or mapped; False also where no regular file is.

    All are opened to read, then `between` is called, then each is asked for a lease that is dropped at once. True where
    that cannot be told: no right to open it, another owner, a system without leases.
    """

def trim() -> None:
    """Give freed memory back to the system where that does not happen by itself."""

def birth(fd: int, /) -> int:
    """When the inode was created, in nanoseconds; 0 where the file system does not say."""
