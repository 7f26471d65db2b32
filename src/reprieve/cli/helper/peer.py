"""Whether two processes are the same to the kernel: may the same, see the same, are limited alike.

The helper works with its own rights, not with those of the process that asked. So it works only for one that has
exactly the same: a confined agent must not find a deputy that is not confined.
"""

from __future__ import annotations

import os
import resource

from reprieve.files.mounts import read_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Lines of /proc/PID/status. A filter of system calls, once there is one, can't be compared; but its number can, and
# without NoNewPrivs only the administrator can have added one.
_RIGHTS = (
    b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb", b"NoNewPrivs", b"Seccomp",
    b"Seccomp_filters", b"Cpus_allowed", b"Mems_allowed",
)  # fmt: skip
_RIGHTS_AT = tuple(name + b":" for name in _RIGHTS)
# A fork has the address space of the helper, which these would judge instead of the command's own.
_MEMORY = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK)
_LIMITS = tuple(sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}))

Status = dict[bytes, bytes]


class Unlike(Exception):
    """The two differ, or it can't be told."""


def status(pid: int | str) -> Status:
    """What /proc/PID/status says, by name."""
    lines = read_proc(f"/proc/{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}


def namespaces() -> list[str]:
    """The kinds that this kernel has."""
    return sorted(os.listdir("/proc/self/ns"))


def portrait(pid: int | str, known: Status, kinds: Sequence[str]) -> tuple[object, ...]:
    """What must be equal: rights, namespaces, the root, the control group, the security label, the priority."""
    folder = f"/proc/{pid}"
    root = os.stat(f"{folder}/root")
    number = os.getpid() if pid == "self" else int(pid)
    try:
        label = read_proc(f"{folder}/attr/current")
    except OSError:
        label = b""  # no security module that has labels
    return (
        tuple(known.get(name) for name in _RIGHTS),
        tuple(os.readlink(f"{folder}/ns/{kind}") for kind in kinds),
        (root.st_dev, root.st_ino),
        read_proc(f"{folder}/cgroup"),
        label,
        os.getpriority(os.PRIO_PROCESS, number),
        os.sched_getscheduler(number),
    )


def rights(pid: int | str, kinds: Sequence[str]) -> tuple[object, ...]:
    """What must be equal where nothing is done but to write down what was said: what it may, and where it is.

    As `portrait`, without the limits of what it may use up, and in fewer looks.
    """
    folder = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        root = os.stat("root", dir_fd=folder)
        try:
            label = _read_at(folder, "attr/current")
        except OSError:
            label = b""  # no security module that has labels
        lines = _read_at(folder, "status").split(b"\n")
        return (
            [line for line in lines if line.startswith(_RIGHTS_AT)],
            [os.readlink(f"ns/{kind}", dir_fd=folder) for kind in kinds],
            (root.st_dev, root.st_ino),
            label,
        )
    finally:
        os.close(folder)


def _read_at(folder: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def is_confined(known: Status) -> bool:
    """Whether it has given up rights in ways that /proc does not show in full (Landlock, filters of system calls)."""
    return known.get(b"NoNewPrivs") != b"0"


def limits(pid: int | str) -> bytes:
    """All resource limits of a process, as text: one look at the kernel instead of one for each."""
    return read_proc(f"/proc/{pid}/limits")


def adopt_limits(pid: int) -> None:
    """Give this process the resource limits of that one. Raises Unlike where that is not possible."""
    for number in _LIMITS:
        theirs = resource.prlimit(pid, number)
        if theirs == resource.getrlimit(number):
            continue
        if number in _MEMORY:
            raise Unlike("limits of memory")
        try:
            resource.setrlimit(number, theirs)
        except (OSError, ValueError) as error:
            raise Unlike("limits") from error


def ignored_signals(known: Status) -> set[int]:
    """Numbers of the signals that it ignores. Raises Unlike if it holds some back."""
    if int(known[b"SigBlk"], 16):
        raise Unlike("blocked signals")
    mask = int(known[b"SigIgn"], 16)
    # 32 and 33 are the C library's own: it ignores them in what it spawns, and lets nobody else touch them
    return {number for number in range(1, 65) if mask >> (number - 1) & 1 and number not in (32, 33)}


def frozen(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables that Python or SQLite read only once, when they start."""
    names = (b"LANG", b"LANGUAGE", b"TMPDIR", b"SQLITE_TMPDIR")
    return {name: value for name, value in variables.items() if name in names or name.startswith(b"LC_")}


def first_environment() -> dict[bytes, bytes]:
    """The environment that this process was started with; Python changes its own (PEP 538)."""
    pairs = (entry.partition(b"=") for entry in read_proc("/proc/self/environ").split(b"\0") if entry)
    return {name: value for name, _, value in pairs}
