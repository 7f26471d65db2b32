"""The index: a cache of the last checkpoint's tree with stat columns, so that the next scan reads only what changed.

It names the timeline entry that it stands for. When it is missing, damaged or of another entry, it is made anew from
the timeline: slower, never wrong.
"""

from __future__ import annotations

import mmap
import os

from reprieve.files import native, tree
from reprieve.model.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve.store.protocols import Buffer

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Loaded(Value):
    """A base to scan against. `truth` is the timeline's tree where the base is not exactly that."""

    base: Buffer | None
    truth: Buffer | None = None


def index_tag(entry_hash: bytes, excludes_digest: bytes) -> bytes:
    """What an index for that entry, made under those excludes, carries."""
    return native.sha256(entry_hash + excludes_digest)[:16]


def load_index(path: str, wanted: bytes) -> Buffer | None:
    """The mapped index if it is whole and carries the wanted tag, else None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        if size < tree.HEADER.size + 16:
            return None
        mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_WILLNEED)  # all of it is read, from the beginning to the end
    finally:
        os.close(fd)
    view = memoryview(mapped)
    packed, boot = view[:-16], bytes(view[-16:])
    if tree.tag(packed) != wanted:
        return None
    # It is written without fsync: whole as long as this boot lasts (rename), to be checked after another.
    # The header's lengths are checked by every native call.
    if boot != _boot() or boot == bytes(16):
        try:
            native.check(packed)
        except ValueError:
            return None
    return packed


def save_index(path: str, index: Buffer) -> None:
    """Replace the index. A cache: a crash leaves the old one, which then has the wrong tag."""
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for piece in (memoryview(index), memoryview(_boot())):
            while piece:
                piece = piece[os.write(fd, piece) :]
    finally:
        os.close(fd)
    os.rename(temporary, path)


def retag(path: str, index: Buffer, tag: bytes) -> None:
    """Make an unchanged index stand for a newer entry: 16 bytes in place, nothing else moves.

    A torn write gives a tag that fits no entry, so the index is made anew.
    """
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(fd, tag, 40)
    finally:
        os.close(fd)


def rebuild(truth: Buffer, accepts: Callable[[bytes, bool], bool] | None) -> Loaded:
    """A base from the timeline's tree: no stat columns, so every file will be read and compared by content."""
    gone = []
    for path, entry in tree.entries(truth):
        if entry.gap or (accepts is not None and path and not accepts(path, entry.kind == b"d")):
            gone.append(path)
    base = native.merge(truth, tree.pack([]), gone, {}, bytes(16)) if gone else truth
    return Loaded(base, truth)


def _boot() -> bytes:
    try:
        with open(_BOOT_ID, "rb") as f:
            return bytes.fromhex(f.read().strip().replace(b"-", b"").decode())
    except OSError:
        return bytes(16)  # not Linux: checked every time
