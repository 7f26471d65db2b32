"""Undo by a command: an argument list that was frozen when the effect was recorded, run without a shell.

    inverse = {"kind": "command", "argv": [...], "cwd": ..., "env": [names], "timeout_s": 60, "is_idempotent": false}

The program gets a small environment of its own, no standard input, a time limit and a limit for what it prints; when
it ends its whole process group is ended with it.
"""

from __future__ import annotations

import os

from reprieve.effects.driver import READY, UNCLEAR, Check, Outcome
from reprieve.errors import Refused, Usage
from reprieve.model.effect import FAILED, MANUAL, UNDONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reprieve.model.effect import Effect, Json

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT_S = 60
MOST_OUTPUT = 1 << 20
_SHOWN = 2000
_PASSED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_NEVER = ("PATH", "ENV", "BASH_ENV", "IFS", "SHELLOPTS")  # names an allow-list cannot name
_NEVER_BEGIN = ("LD_", "DYLD_", "PYTHON", "GIT_", "PERL", "RUBY", "NODE_", "JAVA_", "BASH_FUNC_")


def inverse_of(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Sequence[str] = (),
    timeout_s: int = TIMEOUT_S,
    is_idempotent: bool = False,
) -> Json:
    """The frozen inverse. The program is looked up now: what an agent puts into PATH later is not it. Raises Usage."""
    import shutil

    if not argv or not argv[0]:
        raise Usage("a command that reverses needs a program")
    for name in env:
        if name in _NEVER or name.startswith(_NEVER_BEGIN):
            raise Usage(f"the variable '{name}' changes what programs do; it is not passed on")
    if any("\0" in word for word in argv):
        raise Usage("an argument can't hold a zero byte")
    program = argv[0] if os.path.isabs(argv[0]) else shutil.which(argv[0], path=PATH)
    if program is None:
        found = shutil.which(argv[0])
        program = os.path.abspath(found) if found else None
    if program is None:
        raise Usage(f"there is no program '{argv[0]}'", hints=["give its whole path"])
    return {
        "kind": "command",
        "argv": [program, *argv[1:]],
        "cwd": os.path.abspath(cwd),
        "env": list(env),
        "timeout_s": timeout_s,
        "is_idempotent": is_idempotent,
    }


class CommandDriver:
    """Runs the command."""

    def says(self, effect: Effect) -> str:
        import shlex

        inverse = effect.inverse or {}
        return "run: " + shlex.join(_words(inverse)) + f"  (in {inverse.get('cwd', '.')})"

    def check(self, effect: Effect, names: Mapping[str, str]) -> Check:
        inverse = effect.inverse or {}
        program, cwd = _words(inverse)[0], str(inverse.get("cwd", ""))
        if not os.access(program, os.X_OK):
            return Check(UNCLEAR, f"the program {program} is not there")
        if not os.path.isdir(cwd):
            return Check(UNCLEAR, f"the folder {cwd} is not there")
        return Check(READY)

    def undo(self, effect: Effect, names: Mapping[str, str]) -> Outcome:
        inverse = effect.inverse or {}
        passed = [str(name) for name in _list(inverse.get("env"))]
        try:
            code, output, limit = run_bounded(
                [names.get(word, word) for word in _words(inverse)],
                cwd=str(inverse.get("cwd", "")),
                env=environment(passed),
                timeout_s=float(str(inverse.get("timeout_s") or TIMEOUT_S)),
            )
        except OSError as e:
            return Outcome(FAILED, f"could not be started: {e.strerror}")
        said = f": {output}" if output else ""
        if limit:
            return Outcome(MANUAL, f"ended by us after {limit}; how far it came is not known{said}")
        if code != 0:
            return Outcome(FAILED, f"exit code {code}{said}")
        return Outcome(UNDONE, f"exit code 0{said}")

    def resolve(self, effect: Effect) -> str:
        return UNKNOWN

    def may_repeat(self, effect: Effect) -> bool:
        return bool((effect.inverse or {}).get("is_idempotent"))


def environment(passed: Sequence[str]) -> dict[str, str]:
    """What a reversing program may know: nothing that an agent could have set to change what it does."""
    for name in passed:
        if name in _NEVER or name.startswith(_NEVER_BEGIN):
            raise Refused(f"the variable '{name}' changes what programs do; it is not passed on")
    env = {name: os.environ[name] for name in (*_PASSED, *passed) if name in os.environ}
    return {**env, "PATH": PATH}


def run_bounded(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout_s: float, most: int = MOST_OUTPUT
) -> tuple[int, str, str]:
    """Exit code, the end of what it printed, and the limit that ended it ("" if none). Its whole group is ended."""
    import selectors
    import signal
    import subprocess
    import time

    child = subprocess.Popen(
        list(argv),
        cwd=cwd or None,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        close_fds=True,
    )
    assert child.stdout is not None
    until, printed, kept, limit = time.monotonic() + timeout_s, 0, b"", ""
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    limit = f"{timeout_s:g} s"
                    break
                if not ready.select(min(left, 0.1)):
                    if child.poll() is not None:
                        break  # a grandchild holds the pipe open; it goes with the group
                    continue
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    break
                printed += len(data)
                kept = (kept + data)[-_SHOWN * 4 :]
                if printed > most:
                    limit = f"{most:,} bytes of output"
                    break
        if not limit:
            try:
                child.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                limit = f"{timeout_s:g} s"
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # the group is gone already
        child.wait()
        child.stdout.close()
    return child.returncode, kept.decode("utf-8", "replace")[-_SHOWN:].strip(), limit


def _words(inverse: Mapping[str, object]) -> list[str]:
    return [str(word) for word in _list(inverse.get("argv"))] or [""]


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
