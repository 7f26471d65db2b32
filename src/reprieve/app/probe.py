"""Run a command in a scratch copy, cut off from the folder that it is a copy of, and end all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

from reprieve.errors import ReprieveError
from reprieve.files import native
from reprieve.files.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

CANNOT_TEST = 125  # as for `git bisect run`
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 2.0


def run_in(scratch: Scratch, argv: Sequence[str], *, where: bytes, env: Mapping[str, str], is_silent: bool) -> int:
    """The command's exit code, 128 + n if signal n ended it. Its output goes to standard error, its input is empty.

    Raises Interrupted and the like only after all of its processes were ended.
    """
    folder = os.path.join(scratch.copy, where) if where else scratch.copy
    if not _is_folder(scratch.copy, where):
        return CANNOT_TEST
    try:
        # a session of its own: one signal reaches all of it, and it cannot wait for a terminal that is not its
        child = subprocess.Popen(
            list(argv),
            cwd=folder,
            env={**env, "PWD": os.fsdecode(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_silent else 2,
            stderr=subprocess.DEVNULL if is_silent else 2,
            start_new_session=True,
        )
    except FileNotFoundError:
        return 127  # as a shell would
    except OSError:
        return 126
    try:
        _wait(child)
    except BaseException:
        with undisturbed():
            end_group(child)
        raise
    _signal_group(child.pid, signal.SIGKILL)  # what it left behind must not write into the next copy
    code = child.wait()
    return code if code >= 0 else 128 - code


def environment(scratch: Scratch, root: bytes, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables for a command in the copy, and the names of those that still lead to the real folder."""
    # git would work on the real repository, reprieve on the real timeline
    env = {name: value for name, value in environ.items() if not name.startswith(("REPRIEVE_", "GIT_"))}
    env.pop("OLDPWD", None)
    env.pop("PWD", None)  # set for each run
    env["REPRIEVE_HOME"] = os.fsdecode(scratch.store)
    text = os.fsdecode(root)
    for name in ("TMPDIR", "TEMP", "TMP"):
        if _leads_to(text, env.get(name, "")):
            del env[name]  # temporary files would be made in the real folder
    leading = [name for name, value in env.items() if any(_leads_to(text, part) for part in value.split(os.pathsep))]
    return env, sorted(leading)


class undisturbed:
    """Signals that ask us to end are not heard inside: what is tidied up is tidied up whole."""

    def __init__(self) -> None:
        self._old: dict[int, object] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDINGS}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def remove(scratch: Scratch) -> str:
    """Erase a scratch copy; why that failed, "" if it did not."""
    with undisturbed():
        try:
            scratch.erase()
        except (OSError, ReprieveError) as e:
            return f"the scratch copy '{os.fsdecode(scratch.top)}' could not be removed: {e}"
    return ""


def _is_folder(copy: bytes, where: bytes) -> bool:
    """Whether the caller's folder is in the copy, as a folder and not as a link that may lead out of it."""
    root_fd = os.open(copy, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if where:
            os.close(native.open_beneath(root_fd, where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(root_fd)
    return True


def _wait(child: subprocess.Popen[bytes], *, at_most_s: float = 1e9) -> None:
    """Until it has ended. It is not reaped yet, so its number still means this group and no other."""
    # In short waits: a signal in the instant before an endless one begins would not be heard until its end.
    deadline, pause = time.monotonic() + at_most_s, 0.001
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a command that leads a session of its own, with all that it started: by request, then by force."""
    _signal_group(child.pid, signal.SIGTERM)
    _wait(child, at_most_s=_GRACE_S)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left; macOS says EPERM when only the dead are


def _leads_to(root: str, value: str) -> bool:
    return value == root or value.startswith(root.rstrip("/") + "/")
