"""Start a command without a network: in a namespace of its own that has nothing but a loopback of its own.

`python -m reprieve.app.isolate ARGV…` becomes that command. What an agent starts inside can't leave, whatever client,
socket or interpreter it uses; what can't be shut out is not started at all.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
FAILED = 125  # as `env`, `timeout` and `unshare` tell that they themselves failed


def is_possible() -> bool:
    """Whether this machine lets us, tried in a child: a namespace can't be left again."""
    pid = os.fork()
    if pid == 0:
        try:
            shut_out()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def shut_out() -> None:
    """Put this process where there is no network. Raises OSError."""
    if not sys.platform.startswith("linux"):
        raise OSError("only Linux can do that")
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_NET) != 0:
        # without rights for that: in a user namespace, where we stay who we are
        if libc.unshare(_NEW_USER | _NEW_NET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, _GET_FLAGS, asked))[1]
        fcntl.ioctl(probe, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def main(argv: list[str]) -> None:
    try:
        shut_out()
    except OSError as e:
        print(f"reprieve run: the network can't be shut out here ({e.strerror or e}); nothing was run", file=sys.stderr)
        os._exit(FAILED)
    try:
        os.execvp(argv[0], argv)
    except OSError as e:
        print(f"reprieve run: {argv[0]}: {e.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(e, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv[1:])
