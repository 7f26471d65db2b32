"""Where the helper of a store is found: the socket `helper` in the home, and the lock that lets there be only one."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

SOCKET = "helper"
HOOKS = "hooks"  # of agents alone, who send what they have to say at once
_LOCK = "locks/helper"


def open_home(path: str) -> int:
    """A descriptor of the store's directory. Raises OSError if it is not there or not as it must be."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(path)
    return fd


def take_lock(home: int) -> int:
    """The lock; whoever holds the descriptor, also one inherited from us, is the helper. Raises OSError if one is."""
    fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=home)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def address(home: int, name: str = SOCKET) -> str:
    """Of the socket: through the descriptor, since a path may be longer than an address can be."""
    return f"/proc/self/fd/{home}/{name}"


def followed(path: str, root: bytes) -> tuple[bool, str]:
    """Whether the helper of that store follows a tree with inotify, and what it says about it; "" if nothing."""
    try:
        with open(os.path.join(path, _LOCK), encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
    except OSError:
        return False, ""
    for word, name, text in (line for line in lines if len(line) == 3):
        if name == repr(root):
            return word == "followed", text
    return False, ""


def running(path: str) -> int:
    """The process number of the helper of that store; 0 if there is none."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    try:
        home = open_home(path)
    except OSError:
        return 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1)
            connection.connect(address(home))
            return int(struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    except OSError:
        return 0
    finally:
        os.close(home)
