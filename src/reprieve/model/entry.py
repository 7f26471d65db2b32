"""One name in a tree: what a checkpoint knows about a file, directory, link or special file."""

from __future__ import annotations

from reprieve.model.value import Value

TYPE_CHECKING = False

FILE, DIR, SYMLINK, FIFO, SOCKET, CHAR, BLOCK = b"f", b"d", b"l", b"p", b"s", b"c", b"b"


class Entry(Value):
    """What is at one path. `content` names the object that holds a file's bytes.

    Paths are bytes relative to the root, joined by `/`; the root itself is `b""`. Two entries are equal
    when a restore from one would give the other: stat-cache fields (inode, ctime) are not part of it.
    """

    kind: bytes
    mode: int  # permission bits with setuid, setgid, sticky
    uid: int
    gid: int
    size: int = 0
    mtime_s: int = 0
    mtime_ns: int = 0
    content: bytes = b""  # 32-byte object id, b"" if not a file or not captured
    is_chunked: bool = False  # content is a chunk list, not the bytes themselves
    target: bytes = b""  # of a symlink
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    link: int = 0  # hard-link group; entries of one tree with the same non-zero number are one file
    rdev: int = 0
    gap: str = ""  # why this entry's content is not protected, "" if it is

    if not TYPE_CHECKING:
        # compared once or more for every path of a tree, with nothing but entries: the tuple's own will do
        __eq__ = tuple.__eq__
        __ne__ = tuple.__ne__
        __hash__ = tuple.__hash__

    @property
    def same_bytes_key(self) -> tuple[bytes, bytes, bytes, int]:
        """Equal for entries whose content (not mode or times) is the same."""
        return (self.kind, self.content, self.target, self.rdev)

    @property
    def same_file_key(self) -> tuple[object, ...]:
        """Equal for entries that can be names of one file; times are the file's own business."""
        return (*self.same_bytes_key, self.mode, self.uid, self.gid, self.xattrs)
