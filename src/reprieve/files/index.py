"""The index: a cache of the last checkpoint's tree with stat columns, so that the next scan reads only what changed.

It names the timeline entry that it stands for. When it is missing, damaged or of another entry, it is made anew from
the timeline: slower, never wrong.
"""

from __future__ import annotations

import os
import struct

from reprieve.files import native, tree
from reprieve.files.mapped import BOOT, mapped, this_boot
from reprieve.files.told import Mark
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.store.protocols import Buffer

# After the tree: since when the helper knows what changed (zeros: never), whether nothing was ever forgotten, the boot.
_MARK = struct.Struct("<16sQQ")


class Loaded(Value):
    """A base to scan against. `truth` is the timeline's tree where the base is not exactly that."""

    base: Buffer | None
    truth: Buffer | None = None
    mark: Mark | None = None  # since when what changed is known, if the base is an index just as it was saved
    is_complete: bool = False  # nothing was forgotten on this timeline; False: not known


def index_tag(entry_hash: bytes, limits_digest: bytes) -> bytes:
    """What an index for that entry, made under those limits, carries."""
    return native.sha256(entry_hash + limits_digest)[:16]


def load_index(path: str, wanted: bytes | None) -> Loaded | None:
    """The mapped index with its mark if it is whole and carries the wanted tag (None: any), else None."""
    try:
        view = mapped(path)
    except FileNotFoundError:
        return None
    if len(view) < tree.HEADER.size + BOOT:
        return None
    if wanted is not None and tree.tag(view) != wanted:
        return None
    end, boot = tree.length(view), bytes(view[-BOOT:])
    mark, is_complete = None, 0
    if len(view) == end + _MARK.size + BOOT:
        id, seq, is_complete = _MARK.unpack_from(view, end)
        mark = Mark(id, seq) if id != bytes(16) else None
    elif len(view) != end + BOOT:
        return None
    packed = view[:end]
    # It is written without fsync: whole as long as this boot lasts (rename), to be checked after another.
    # The header's lengths are checked by every native call.
    if boot != this_boot() or boot == bytes(16):
        try:
            native.check(packed)
        except ValueError:
            return None
    return Loaded(packed, mark=mark, is_complete=is_complete == 1)


def save_index(path: str, index: Buffer, mark: Mark | None = None, *, is_complete: bool = False) -> None:
    """Replace the index. A cache: a crash leaves the old one, which then has the wrong tag."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            known = mark if mark is not None else Mark(bytes(16), 0)
            end = _MARK.pack(known.id, known.seq, is_complete) + this_boot()
            for piece in (memoryview(index), memoryview(end)):
                while piece:
                    piece = piece[os.write(fd, piece) :]
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)  # the disk may be full: a cache is the last that should fill it
        raise


def retag(path: str, index: Buffer, tag: bytes, mark: Mark | None = None, *, is_complete: bool = False) -> bool:
    """Make an unchanged index stand for a newer entry, in place; False if that file cannot take the mark.

    A torn write gives a tag that fits no entry, so the index is made anew. Without a mark what is there stays: it is
    of the same rows, and what changed since then is more than what changed since now; and the newer entry is a
    checkpoint, which forgets nothing.
    """
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if mark is not None:
            end = tree.length(index)
            if os.fstat(fd).st_size != end + _MARK.size + BOOT:
                return False
            os.pwrite(fd, _MARK.pack(mark.id, mark.seq, is_complete), end)
        os.pwrite(fd, tag, 40)
    finally:
        os.close(fd)
    return True


def rebuild(truth: Buffer, accepts: Callable[[bytes, bool], bool] | None) -> Loaded:
    """A base from the timeline's tree: no stat columns, so every file will be read and compared by content."""
    gone = []
    for path, entry in tree.entries(truth):
        if entry.gap or (accepts is not None and path and not accepts(path, entry.kind == b"d")):
            gone.append(path)
    base = native.merge(truth, tree.pack([]), gone, {}, bytes(16)) if gone else truth
    return Loaded(base, truth)
