"""A promise: an entry that is durable before it is on the timeline, in a file of its own; at most one per workspace.

The resident helper answers an agent with it (docs/design/0012-promises.md). Whoever has the workspace's lock next puts
the entry on the timeline and makes the file empty again. The file is as long as any promise from the beginning, so that
writing one takes no new block of the disk and one sync. docs/format.md outranks this code.
"""

from __future__ import annotations

import os
import struct

from reprieve.store.hashing import sha256

FOLDER = "promises"
SIZE = 16 << 10
_HEAD = struct.Struct("<8sII32s")  # magic, length of the text, zero, SHA-256 of the text
_MAGIC = b"RPPROM01"
_EMPTY = bytes(_HEAD.size)


def path_of(home: str, workspace: str) -> str:
    """Where a workspace's promise is."""
    return f"{home}/{FOLDER}/{workspace}"


def prepare(home: str, workspace: str) -> None:
    """Have an empty file there, durably. Raises OSError."""
    path = path_of(home, workspace)
    if os.path.lexists(path):
        return
    from reprieve.store.home import (
        create_file,
        make_directory,
        sync_directory,
        write_all,
    )  # not for who only writes one

    make_directory(os.path.dirname(path))
    temporary = f"{home}/tmp/promise.{workspace}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = create_file(temporary)
    try:
        try:
            write_all(fd, bytes(SIZE), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(temporary, path)  # not a rename: a promise that somebody else wrote meanwhile must not go
        except FileExistsError:
            return
    finally:
        os.unlink(temporary)
    sync_directory(os.path.dirname(path))
    sync_directory(home)


def write(fd: int, text: str) -> bool:
    """Make it durable in a file from `prepare`; False if it is too long. After an OSError it may be there or not."""
    data = text.encode()
    if _HEAD.size + len(data) > SIZE:
        return False
    record = _HEAD.pack(_MAGIC, len(data), 0, sha256(data)) + data
    if os.pwrite(fd, record, 0) != len(record):
        raise OSError(5, "a part could not be written")
    os.fdatasync(fd)
    return True


def is_empty(fd: int) -> bool:
    """Whether nothing is promised in a file from `prepare`."""
    return os.pread(fd, _HEAD.size, 0) == _EMPTY


def read(home: str, workspace: str) -> str:
    """The promise that is still to be kept, "" if there is none. Raises OSError.

    One that is torn was not durable, so nobody was answered with it.
    """
    try:
        fd = os.open(path_of(home, workspace), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        head = os.pread(fd, _HEAD.size, 0)
        if len(head) < _HEAD.size or head == _EMPTY:
            return ""
        magic, length, _, digest = _HEAD.unpack(head)
        data = os.pread(fd, min(length, SIZE), _HEAD.size)
    finally:
        os.close(fd)
    return data.decode() if magic == _MAGIC and len(data) == length and sha256(data) == digest else ""


def save_ticket(home: str, root: bytes, data: bytes) -> None:
    """Leave what is needed for the next promise in that folder. A cache: not synced. Raises OSError."""
    from reprieve.store.home import create_file, make_directory, write_all

    path = _ticket(home, root)
    make_directory(os.path.dirname(path))
    temporary = f"{home}/tmp/ticket.{os.getpid()}.{os.urandom(4).hex()}"
    fd = create_file(temporary)
    try:
        try:
            write_all(fd, sha256(data) + data, 0)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def read_ticket(home: str, root: bytes) -> bytes:
    """What was left for that folder, b"" if nothing. Raises OSError."""
    try:
        fd = os.open(_ticket(home, root), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        data = os.read(fd, 1 << 20)
    finally:
        os.close(fd)
    return data[32:] if sha256(data[32:]) == data[:32] else b""


def _ticket(home: str, root: bytes) -> str:
    return f"{home}/tickets/{sha256(root)[:16].hex()}"


def clear(home: str, workspace: str) -> None:
    """It is kept. Not synced: a promise that comes back is found on the timeline. Raises OSError."""
    fd = os.open(path_of(home, workspace), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(fd, _EMPTY, 0)
    finally:
        os.close(fd)
