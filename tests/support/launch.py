"""Start a program under other circumstances: `python launch.py '{"umask": 0, …}' PROGRAM ARGS…`.

A program of its own and not a `preexec_fn`, which is unsafe (and warned about) in a process with threads.

    powerless   as a user like any other, even when the tests run as root: no capability is left, so modes and
                owners count; the user id stays, so nothing has to change hands first
    umask       the umask
    files       how many file descriptors may be open
    bytes       how large a file may become (RLIMIT_FSIZE)
    memory      how many bytes of address space
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys

PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
LAST_CAP = 63  # dropping one that the kernel does not know fails harmlessly


def drop_all_capabilities() -> None:
    """An exec by root gives what the bounding set allows: empty it, and root is a user like any other."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(LAST_CAP + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def main(options: dict[str, int], argv: list[str]) -> None:
    """Become `argv`, with the options in force."""
    if "umask" in options:
        os.umask(options["umask"])
    for name, limit in (
        ("files", resource.RLIMIT_NOFILE),
        ("bytes", resource.RLIMIT_FSIZE),
        ("memory", resource.RLIMIT_AS),
    ):
        if name in options:
            resource.setrlimit(limit, (options[name], options[name]))
    if options.get("powerless") and os.geteuid() == 0:
        drop_all_capabilities()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
