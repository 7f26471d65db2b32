"""Which processes are still at work: those that hold a window open, and those that a finished command left behind."""

from __future__ import annotations

import os

_HERTZ = 100  # the kernel's count of a second, in /proc
_YOUNG = _HERTZ // 2
RUN = "REPRIEVE_RUN"  # in the environment of everything that `reprieve run` starts: the pid of that run


_caller = 0


def stand_for(pid: int) -> None:
    """This process works in the stead of that one: what is asked about us is meant for it."""
    global _caller
    _caller = pid


def _ourselves() -> int:
    return _caller or os.getpid()


def born(pid: int) -> int:
    """When a process started, in the kernel's own count; 0 if there is none, or it is dead, or it can't be known."""
    fields = _fields(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else 0


def patron() -> int:
    """The nearest process above this one that was there before: who called us, and not a shell in between.

    0 if that can't be told. A shell that was started for us alone is as young as we are.
    """
    fields = _fields(_ourselves())
    mine = int(fields[19]) if fields else 0
    while mine and fields and (pid := int(fields[1])) > 1:
        fields = _fields(pid)
        if fields and fields[0] not in (b"Z", b"X") and 0 < int(fields[19]) < mine - _YOUNG:
            return pid
    return 0


def above() -> list[int]:
    """The processes that this one descends from, nearest first."""
    found: list[int] = []
    fields = _fields(_ourselves())
    while fields and (pid := int(fields[1])) > 1 and pid not in found:
        found.append(pid)
        fields = _fields(pid)
    return found


def has_own_terminal() -> bool:
    """Whether this process has a terminal, and descends from the shell (or whatever leads the session) that has it.

    A process that lost its parent still has the terminal, but whoever left it behind is not at the keyboard.
    """
    if not os.path.exists("/proc/self/stat"):
        return _has_tty()
    fields = _fields(_ourselves())
    return bool(fields) and fields[4] != b"0" and int(fields[3]) in (_ourselves(), *above())


def _has_tty() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError:
        return False
    return True


def is_ours(pid: int) -> bool:
    """Whether it is this process, or the one that it works for."""
    return pid in (_ourselves(), os.getpid())


def _fields(pid: int | str) -> list[bytes]:
    """State, parent, … start of a process, as /proc/PID/stat has them after the name; none if it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # not `open`: it asks twice as much of the kernel
    except OSError:
        return []
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(fd)


def is_alive(pid: int, started: int) -> bool:
    """Whether it is that process, and not another one with its number."""
    if started or os.path.exists("/proc/self/stat"):
        return started != 0 and born(pid) == started
    try:
        os.kill(pid, 0)  # no /proc: the number is all there is to go by
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_group_alive(group: int) -> bool:
    """Whether a process of this group is at work; one that is dead and only not buried yet is not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if not os.path.exists("/proc/self/stat"):
        return True
    found = map(_fields, filter(str.isdecimal, os.listdir("/proc")))
    return any(f and int(f[2]) == group and f[0] not in (b"Z", b"X") for f in found)


def orphans(root: bytes, age_s: float, *, now_s: float = 0) -> tuple[tuple[int, int], ...]:
    """(pid, born) of our user's processes in `root` that are younger than this and whose parent is gone.

    `now_s`: seconds since the machine started; without it our own start is now, as it is for a hook.

    That is how a shell leaves `server &` behind. One with a living parent is somebody's: an editor's helper, a
    person's shell; taking those for an agent's would take a person's edits for its work.
    """
    mine = born(_ourselves())
    if not mine:
        return ()
    eldest = (int(now_s * _HERTZ) or mine) - int(age_s * _HERTZ)
    inside = root.rstrip(b"/") + b"/"
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        fields = _fields(name)
        if not fields:
            continue
        try:
            started = int(fields[19])
            if started < eldest or fields[0] in (b"Z", b"X") or not _is_reaper(int(fields[1])):
                continue
            cwd = os.readlink(os.fsencode(f"/proc/{name}/cwd"))
        except OSError:
            continue  # another user's, or gone
        if (cwd + b"/").startswith(inside) and int(name) not in (os.getpid(), _caller):
            found.append((int(name), started))
    return tuple(found)


def _is_reaper(pid: int) -> bool:
    """Whether it is who gets the children of the dead: the first process, or a user's own systemd."""
    if pid == 1:
        return True
    with open(f"/proc/{pid}/comm", "rb") as file:
        return file.read().strip() == b"systemd"


def left_by(run: int) -> tuple[tuple[int, int], ...]:
    """(pid, born) of what a run started and what is still there. Found by what it was given in its environment."""
    mark = f"{RUN}={run}".encode()
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return ()
    for name in names:
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                is_ours = mark in file.read().split(b"\0")
        except OSError:
            continue  # another user's, or gone
        if is_ours and (started := born(int(name))):
            found.append((int(name), started))
    return tuple(found)


def name_of(pid: int | str) -> str:
    """What a process is called. Raises OSError if it is gone, or not ours to ask."""
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def find_writers(files: set[tuple[int, int]]) -> dict[tuple[int, int], list[tuple[int, str]]]:
    """(pid, name) of the processes that have these (device, inode) open for writing, or mapped so.

    Those of other people can't be asked.
    """
    found: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for pid in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc/self") else ()):
        try:
            held = _open_for_writing(pid, files) | _mapped_for_writing(pid, files)
            name = name_of(pid)
        except OSError:
            continue  # gone, or not ours to ask
        for file in held:
            found.setdefault(file, []).append((int(pid), name))
    return found


def _open_for_writing(pid: str, files: set[tuple[int, int]]) -> set[tuple[int, int]]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            st = os.stat(f"/proc/{pid}/fd/{fd}")
            if (st.st_dev, st.st_ino) not in files:
                continue
            with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as f:
                flags = next((int(line.split()[1], 8) for line in f if line.startswith(b"flags:")), 0)
        except OSError:
            continue  # closed meanwhile
        if flags & os.O_ACCMODE != os.O_RDONLY:
            found.add((st.st_dev, st.st_ino))
    return found


def _mapped_for_writing(pid: str, files: set[tuple[int, int]]) -> set[tuple[int, int]]:
    inodes = {b"%d" % ino: (dev, ino) for dev, ino in files}
    with open(f"/proc/{pid}/maps", "rb") as f:
        # address, rights, offset, device, inode, path
        lines = (line.split(None, 5) for line in f)
        return {inodes[line[4]] for line in lines if line[4] in inodes and line[1][1::2] == b"ws"}


def is_mapped(ino: int) -> bool:
    """Whether a process has this file mapped so that it can write it; those of other people can't be asked."""
    wanted = b" %d " % ino
    for pid in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open(f"/proc/{pid}/maps", "rb") as f:
                maps = f.read()
        except OSError:
            continue  # no process, or not ours to ask
        # address, rights, offset, device, inode, path
        if wanted in maps and any(wanted in line and line.split()[1][1::2] == b"ws" for line in maps.splitlines()):
            return True
    return False
